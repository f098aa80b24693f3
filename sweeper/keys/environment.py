"""Numbers from environment variables: OmegaConf reads `${oc.env:NAME}` as text, also where a number is meant."""

from __future__ import annotations

import re

from dpsweep.sweeper.keys.documented_keys import documented_keys

_VARIABLE = re.compile(r"\$\{oc\.env:[^{}]+\}")


def decoded(word: str) -> str:
    """An override whose value is an environment variable, read as a number where its key has numbers.

    >>> decoded("privacy.epsilon=${oc.env:EPSILON}"), decoded("data=${oc.env:FOLDER}")
    ("privacy.epsilon='${oc.decode:${oc.env:EPSILON}}'", 'data=${oc.env:FOLDER}')
    """
    key, _, value = word.partition("=")
    if not _VARIABLE.fullmatch(value):  # asked first: to read all of conf/ takes a tenth of a command's time
        return word
    known = documented_keys().get(key)
    if known is None or not known.is_number:
        return word
    return f"{key}='${{oc.decode:{value}}}'"
