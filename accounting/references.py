"""Published works, as BibTeX entries, for the classes of ours that lean on them.

A rule, an accountant, a method or a sampler names its works in a class attribute `works`, beside its declaration;
`works_that_class_cites` reads it. Titles, venues, years and pages are those of the published versions, or of arXiv
where there is none. A work of your own needs no entry: a class without `works` leans on nothing that a paper has to
cite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Work:
    """One work: the key of its entry, its authors in BibTeX's spelling, its title and year, and further fields.

    >>> print(Work(key="a2020b", authors=("Ann Author",), title="On {DP}", year=2020, venue={"journal": "J"}).bibtex)
    @article{a2020b,
      author = {Ann Author},
      title = {On {DP}},
      journal = {J},
      year = {2020},
    }
    """

    key: str
    authors: tuple[str, ...]
    title: str
    year: int | None
    venue: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def bibtex(self) -> str:
        """The entry; its type follows from where the work appeared."""
        kinds = {"booktitle": "inproceedings", "journal": "article"}
        kind = next((kinds[name] for name in self.venue if name in kinds), "misc")
        year = {} if self.year is None else {"year": str(self.year)}
        authors = {"author": " and ".join(self.authors)} if self.authors else {}
        fields = {**authors, "title": self.title, **self.venue, **year}
        lines = "".join(f"  {name} = {{{text}}},\n" for name, text in fields.items())
        return f"@{kind}{{{self.key},\n{lines}}}"


def works_that_class_cites(declared: object) -> tuple[Work, ...]:
    """The works that a class of ours, or an object of it, leans on; empty for a class that names none."""
    works: tuple[Work, ...] = getattr(declared, "works", ())
    return works


def _bibtex_fields_of_arxiv_number(number: str) -> dict[str, str]:
    return {"eprint": number, "archiveprefix": "arXiv"}


_NEURIPS = "Advances in Neural Information Processing Systems"
_AISTATS = "International Conference on Artificial Intelligence and Statistics"
_ICML_2024 = "Proceedings of the 41st International Conference on Machine Learning"
_MIRONOV = "Ilya Mironov"
_TALWAR = "Kunal Talwar"
_KOSKELA = "Antti Koskela"
_BALLE = "Borja Balle"
_WANG = "Yu-Xiang Wang"

ABADI_2016 = Work(
    key="abadi2016deep",
    authors=(
        *("Mart{\\'i}n Abadi", "Andy Chu", "Ian Goodfellow", "H. Brendan McMahan"),
        *(_MIRONOV, _TALWAR, "Li Zhang"),
    ),
    title="Deep Learning with Differential Privacy",
    year=2016,
    venue={
        "booktitle": "Proceedings of the 2016 ACM SIGSAC Conference on Computer and Communications Security",
        "pages": "308--318",
    },
)
AKIBA_2019 = Work(
    key="akiba2019optuna",
    authors=("Takuya Akiba", "Shotaro Sano", "Toshihiko Yanase", "Takeru Ohta", "Masanori Koyama"),
    title="{Optuna}: A Next-generation Hyperparameter Optimization Framework",
    year=2019,
    venue={
        "booktitle": "Proceedings of the 25th ACM SIGKDD International Conference on Knowledge Discovery and Data "
        "Mining",
        "pages": "2623--2631",
    },
)
BALLE_2018 = Work(
    key="balle2018privacy",
    authors=(_BALLE, "Gilles Barthe", "Marco Gaboardi"),
    title="Privacy Amplification by Subsampling: Tight Analyses via Couplings and Divergences",
    year=2018,
    venue={"booktitle": _NEURIPS, "volume": "31"},
)
BALLE_2020 = Work(
    key="balle2020hypothesis",
    authors=(_BALLE, "Gilles Barthe", "Marco Gaboardi", "Justin Hsu", "Tetsuya Sato"),
    title="Hypothesis Testing Interpretations and {Renyi} Differential Privacy",
    year=2020,
    venue={"booktitle": _AISTATS, "pages": "2496--2506"},
)
BASSILY_2014 = Work(
    key="bassily2014private",
    authors=("Raef Bassily", "Adam Smith", "Abhradeep Thakurta"),
    title="Private Empirical Risk Minimization: Efficient Algorithms and Tight Error Bounds",
    year=2014,
    venue={"booktitle": "IEEE 55th Annual Symposium on Foundations of Computer Science", "pages": "464--473"},
)
BU_2023 = Work(
    key="bu2023automatic",
    authors=("Zhiqi Bu", _WANG, "Sheng Zha", "George Karypis"),
    title="Automatic Clipping: Differentially Private Deep Learning Made Easier and Stronger",
    year=2023,
    venue={"booktitle": _NEURIPS, "volume": "36"},
)
CHAUDHURI_2011 = Work(
    key="chaudhuri2011differentially",
    authors=("Kamalika Chaudhuri", "Claire Monteleoni", "Anand D. Sarwate"),
    title="Differentially Private Empirical Risk Minimization",
    year=2011,
    venue={"journal": "Journal of Machine Learning Research", "volume": "12", "pages": "1069--1109"},
)
CHOQUETTE_2023 = Work(
    key="choquette2023amplified",
    authors=(
        *("Christopher A. Choquette-Choo", "Arun Ganesh", "Ryan McKenna", "H. Brendan McMahan", "Keith Rush"),
        *("Abhradeep Thakurta", "Zheng Xu"),
    ),
    title="(Amplified) Banded Matrix Factorization: A Unified Approach to Private Training",
    year=2023,
    venue={"booktitle": _NEURIPS, "volume": "36"},
)
DOROSHENKO_2022 = Work(
    key="doroshenko2022connect",
    authors=("Vadym Doroshenko", "Badih Ghazi", "Pritish Kamath", "Ravi Kumar", "Pasin Manurangsi"),
    title="Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions",
    year=2022,
    venue={
        "journal": "Proceedings on Privacy Enhancing Technologies",
        "volume": "2022",
        "number": "4",
        "pages": "552--570",
    },
)
DURFEE_2019 = Work(
    key="durfee2019practical",
    authors=("David Durfee", "Ryan Rogers"),
    title="Practical Differentially Private Top-k Selection with Pay-what-you-get Composition",
    year=2019,
    venue={"booktitle": _NEURIPS, "volume": "32"},
)
DWORK_2014 = Work(
    key="dwork2014algorithmic",
    authors=("Cynthia Dwork", "Aaron Roth"),
    title="The Algorithmic Foundations of Differential Privacy",
    year=2014,
    venue={
        "journal": "Foundations and Trends in Theoretical Computer Science",
        "volume": "9",
        "number": "3--4",
        "pages": "211--407",
    },
)
FELDMAN_2025 = Work(
    key="feldman2025privacy",
    authors=("Vitaly Feldman", "Moshe Shenfeld"),
    title="Privacy Amplification by Random Allocation",
    year=2025,
    venue=_bibtex_fields_of_arxiv_number("2502.08202"),
)
GHAZI_2025 = Work(
    key="ghazi2025private",
    authors=("Badih Ghazi", "Pritish Kamath", "Alexander Knop", "Ravi Kumar", "Pasin Manurangsi", "Chiyuan Zhang"),
    title="Private Hyperparameter Tuning with Ex-Post Guarantee",
    year=2025,
    venue={"booktitle": _NEURIPS, **_bibtex_fields_of_arxiv_number("2508.15183")},
)
GOPI_2021 = Work(
    key="gopi2021numerical",
    authors=("Sivakanth Gopi", "Yin Tat Lee", "Lukas Wutschitz"),
    title="Numerical Composition of Differential Privacy",
    year=2021,
    venue={"booktitle": _NEURIPS, "volume": "34", "pages": "11631--11642"},
)
KALININ_2024 = Work(
    key="kalinin2024banded",
    authors=("Nikita P. Kalinin", "Christoph H. Lampert"),
    title="Banded Square Root Matrix Factorization for Differentially Private Model Training",
    year=2024,
    venue={"booktitle": _NEURIPS, "volume": "37"},
)
KAIROUZ_2015 = Work(
    key="kairouz2015composition",
    authors=("Peter Kairouz", "Sewoong Oh", "Pramod Viswanath"),
    title="The Composition Theorem for Differential Privacy",
    year=2015,
    venue={"booktitle": "International Conference on Machine Learning", "pages": "1376--1385"},
)
KINGMA_2015 = Work(
    key="kingma2015adam",
    authors=("Diederik P. Kingma", "Jimmy Ba"),
    title="{Adam}: A Method for Stochastic Optimization",
    year=2015,
    venue={"booktitle": "International Conference on Learning Representations"},
)
KOSKELA_2020 = Work(
    key="koskela2020computing",
    authors=(_KOSKELA, 'Joonas J{\\"a}lk{\\"o}', "Antti Honkela"),
    title="Computing Tight Differential Privacy Guarantees Using {FFT}",
    year=2020,
    venue={"booktitle": _AISTATS},
)
KOSKELA_2020_ADADP = Work(
    key="koskela2020learning",
    authors=(_KOSKELA, "Antti Honkela"),
    title="Learning Rate Adaptation for Differentially Private Learning",
    year=2020,
    venue={"booktitle": _AISTATS, "pages": "2465--2475"},
)
KOSKELA_2023 = Work(
    key="koskela2023practical",
    authors=(_KOSKELA, "Tejas D. Kulkarni"),
    title="Practical Differentially Private Hyperparameter Tuning with Subsampling",
    year=2023,
    venue={"booktitle": _NEURIPS, "volume": "36"},
)
KOSKELA_2024 = Work(
    key="koskela2024privacy",
    authors=(_KOSKELA, "Rachel Emily Redberg", _WANG),
    title="Privacy Profiles for Private Selection",
    year=2024,
    venue={"booktitle": _ICML_2024, "pages": "25313--25332"},
)
LIU_2019 = Work(
    key="liu2019private",
    authors=("Jingcheng Liu", _TALWAR),
    title="Private Selection from Private Candidates",
    year=2019,
    venue={
        "booktitle": "Proceedings of the 51st Annual ACM SIGACT Symposium on Theory of Computing",
        "pages": "298--309",
    },
)
MCSHERRY_2007 = Work(
    key="mcsherry2007mechanism",
    authors=("Frank McSherry", _TALWAR),
    title="Mechanism Design via Differential Privacy",
    year=2007,
    venue={"booktitle": "48th Annual IEEE Symposium on Foundations of Computer Science", "pages": "94--103"},
)
MCSHERRY_2009 = Work(
    key="mcsherry2009privacy",
    authors=("Frank D. McSherry",),
    title="Privacy Integrated Queries: An Extensible Platform for Privacy-Preserving Data Analysis",
    year=2009,
    venue={
        "booktitle": "Proceedings of the 2009 ACM SIGMOD International Conference on Management of Data",
        "pages": "19--30",
    },
)
MCKENNA_2024 = Work(
    key="mckenna2024scaling",
    authors=("Ryan McKenna",),
    title="Scaling up the Banded Matrix Factorization Mechanism for Differentially Private {ML}",
    year=2024,
    venue=_bibtex_fields_of_arxiv_number("2405.15913"),
)
MIRONOV_2017 = Work(
    key="mironov2017renyi",
    authors=(_MIRONOV,),
    title="{R{\\'e}nyi} Differential Privacy",
    year=2017,
    venue={"booktitle": "IEEE 30th Computer Security Foundations Symposium", "pages": "263--275"},
)
MIRONOV_2019 = Work(
    key="mironov2019renyi",
    authors=(_MIRONOV, _TALWAR, "Li Zhang"),
    title="{R{\\'e}nyi} Differential Privacy of the Sampled {Gaussian} Mechanism",
    year=2019,
    venue=_bibtex_fields_of_arxiv_number("1908.10530"),
)
MOHAPATRA_2022 = Work(
    key="mohapatra2022role",
    authors=("Shubhankar Mohapatra", "Sajin Sasy", "Xi He", "Gautam Kamath", "Om Thakkar"),
    title="The Role of Adaptive Optimizers for Honest Private Hyperparameter Selection",
    year=2022,
    venue={
        "booktitle": "Proceedings of the AAAI Conference on Artificial Intelligence",
        "volume": "36",
        "pages": "7806--7813",
    },
)
PANDA_2024 = Work(
    key="panda2024linear",
    authors=("Ashwinee Panda", "Xinyu Tang", "Saeed Mahloujifar", "Vikash Sehwag", "Prateek Mittal"),
    title="A New Linear Scaling Rule for Private Adaptive Hyperparameter Optimization",
    year=2024,
    venue={"booktitle": _ICML_2024},
)
PAPERNOT_2022 = Work(
    key="papernot2022hyperparameter",
    authors=("Nicolas Papernot", "Thomas Steinke"),
    title="Hyperparameter Tuning with {Renyi} Differential Privacy",
    year=2022,
    venue={"booktitle": "International Conference on Learning Representations"},
)
TALWAR_2025 = Work(
    key="talwar2025privacy",
    authors=(_TALWAR,),
    title="Privacy-Computation Trade-Offs in Private Repetition and Metaselection",
    year=2025,
    venue={
        "booktitle": "6th Symposium on Foundations of Responsible Computing",
        **_bibtex_fields_of_arxiv_number("2410.19012"),
    },
)
TANG_2024 = Work(
    key="tang2024dpadambc",
    authors=("Qiaoyue Tang", "Frederick Shpilevskiy", "Mathias L{\\'e}cuyer"),
    title="{DP-AdamBC}: Your {DP-Adam} Is Actually {DP-SGD} (Unless You Apply Bias Correction)",
    year=2024,
    venue={"booktitle": "Proceedings of the AAAI Conference on Artificial Intelligence", "volume": "38"},
)
WANG_2019 = Work(
    key="wang2019subsampled",
    authors=(_WANG, _BALLE, "Shiva Prasad Kasiviswanathan"),
    title="Subsampled {R{\\'e}nyi} Differential Privacy and Analytical Moments Accountant",
    year=2019,
    venue={"booktitle": _AISTATS, "pages": "1226--1235"},
)
WANG_2023 = Work(
    key="wang2023dphypo",
    authors=("Hua Wang", "Sheng Gao", "Huanyu Zhang", "Weijie J. Su", "Milan Shen"),
    title="{DP-HyPO}: An Adaptive Private Hyperparameter Optimization Framework",
    year=2023,
    venue={"booktitle": _NEURIPS, "volume": "36"},
)
XIANG_2026 = Work(
    key="xiang2026revisiting",
    authors=("Zihang Xiang", "Tianhao Wang", "Cheng-Long Wang", "Di Wang"),
    title="Revisiting Differentially Private Hyper-parameter Tuning",
    year=2026,
    venue={
        "booktitle": "Network and Distributed System Security Symposium",
        **_bibtex_fields_of_arxiv_number("2402.13087"),
    },
)
YANG_2022 = Work(
    key="yang2022normalized",
    authors=("Xiaodong Yang", "Huishuai Zhang", "Wei Chen", "Tie-Yan Liu"),
    title="Normalized/Clipped {SGD} with Perturbation for Differentially Private Non-Convex Optimization",
    year=2022,
    venue=_bibtex_fields_of_arxiv_number("2206.13033"),
)
YOUSEFPOUR_2021 = Work(
    key="yousefpour2021opacus",
    authors=(
        *("Ashkan Yousefpour", "Igor Shilov", "Alexandre Sablayrolles", "Davide Testuggine", "Karthik Prasad"),
        *("Mani Malek", "John Nguyen", "Sayan Ghosh", "Akash Bharadwaj", "Jessica Zhao", "Graham Cormode", _MIRONOV),
    ),
    title="{Opacus}: User-Friendly Differential Privacy Library in {PyTorch}",
    year=2021,
    venue=_bibtex_fields_of_arxiv_number("2109.12298"),
)

RELATED_BOUNDS = (WANG_2023, TALWAR_2025, GHAZI_2025, XIANG_2026)
"""Works on the price of private selection that no price of ours leans on."""

WORKS_OF_TAGS: Mapping[str, Work] = {
    "opacus": YOUSEFPOUR_2021,
    "optuna": AKIBA_2019,
    "linear_scaling": PANDA_2024,
}
"""By a tag, or the library before its dot, of a class that no page imports: the import may take seconds."""
