BEGIN TRANSACTION;
CREATE TABLE entries (
	seq INTEGER NOT NULL, 
	account TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	"plan" TEXT NOT NULL, 
	body TEXT NOT NULL, 
	balance TEXT NOT NULL, 
	who TEXT NOT NULL, 
	at TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "entries" VALUES(1,'digits','open','','{"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "policy": {"_target_": "accounting.policy.Addition"}, "unit": "record"}','{"budget": {"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "unit": "record"}, "closed": false, "policy": {"_target_": "accounting.policy.Addition"}, "reserved": {}}','root@vm','2026-11-22T04:04:15+00:00','0000000000000000000000000000000000000000000000000000000000000000','d586aeebad32397c9083f24b96153d0e78091d43be9cbef4223ba616b98a6560');
INSERT INTO "entries" VALUES(2,'digits','data','','{"files": ["a3d19c03935ef0defbbf7cc7884b59600a50f8c18210846464cb5540e41a947c"], "key_id": "b9c1988f921a6ba5db05fe8b737f840257a8852424af6443baa3345e594b66c4"}','{"budget": {"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "unit": "record"}, "closed": false, "policy": {"_target_": "accounting.policy.Addition"}, "reserved": {}}','root@vm','2026-11-22T04:04:15+00:00','d586aeebad32397c9083f24b96153d0e78091d43be9cbef4223ba616b98a6560','bbfb7f14a396f66fdae51eb294d1200d8f1860075a476c9978226b18e4d23fda');
INSERT INTO "entries" VALUES(3,'digits','charge','7beb1ecff388','{"attack": 1.999728303989995, "bounds": {"PLD": 1.999743852938991, "RDP": 2.2011581282701336}, "claimed_by": "PLD", "delta": 1e-05, "epsilon": 1.999743852938991, "event": {"training": {"event": {"events": [{"count": 10, "event": {"event": {"noise_multiplier": 3.44, "type": "GaussianDpEvent"}, "sampling_probability": 0.5006954102920723, "type": "PoissonSampledDpEvent"}, "type": "SelfComposedDpEvent"}], "type": "ComposedDpEvent"}, "version": 1}, "validation": {"event": {"events": [{"count": 2, "event": {"noise_multiplier": 2.82, "type": "GaussianDpEvent"}, "type": "SelfComposedDpEvent"}], "type": "ComposedDpEvent"}, "version": 1}}, "parts": {"training": 1.9993782114306256, "validation": 1.999743852938991}, "reason": "plan", "refusals": {}, "rule": {"_target_": "accounting.composition.Composition", "name": "composition"}, "spares": 0, "takes": {"delta": 1e-05, "epsilon": 1.999743852938991}, "trials": ["d06a4c7ee462", "b9bb2f020d68"]}','{"budget": {"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "unit": "record"}, "closed": false, "policy": {"_target_": "accounting.policy.Addition"}, "reserved": {"delta": "0.00001", "epsilon": "1.999743852938991"}}','root@vm','2026-11-22T04:04:15+00:00','bbfb7f14a396f66fdae51eb294d1200d8f1860075a476c9978226b18e4d23fda','63ced041ef9e1b2873c3985021aeb18758ec74ff1941a53fe6ced0ffa480f38f');
INSERT INTO "entries" VALUES(4,'digits','start','7beb1ecff388','{"attempt": 1, "charge": "63ced041ef9e1b2873c3985021aeb18758ec74ff1941a53fe6ced0ffa480f38f", "trial": "d06a4c7ee462"}','{"budget": {"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "unit": "record"}, "closed": false, "policy": {"_target_": "accounting.policy.Addition"}, "reserved": {"delta": "0.00001", "epsilon": "1.999743852938991"}}','root@vm','2026-11-22T04:04:15+00:00','63ced041ef9e1b2873c3985021aeb18758ec74ff1941a53fe6ced0ffa480f38f','70cd596670056546695f698490b66a50058d2c5254dcb22919138c5ab3765fb8');
INSERT INTO "entries" VALUES(5,'digits','start','7beb1ecff388','{"attempt": 1, "charge": "63ced041ef9e1b2873c3985021aeb18758ec74ff1941a53fe6ced0ffa480f38f", "trial": "b9bb2f020d68"}','{"budget": {"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "unit": "record"}, "closed": false, "policy": {"_target_": "accounting.policy.Addition"}, "reserved": {"delta": "0.00001", "epsilon": "1.999743852938991"}}','root@vm','2026-11-22T04:04:15+00:00','70cd596670056546695f698490b66a50058d2c5254dcb22919138c5ab3765fb8','a5f6d3ed6b5959be13de6608c1341c0091181f236737751be5e436c065bceef4');
INSERT INTO "entries" VALUES(6,'digits','settle','7beb1ecff388','{"attempt": 1, "event": {"event": {"events": [{"count": 5, "event": {"event": {"noise_multiplier": 3.44, "type": "GaussianDpEvent"}, "sampling_probability": 0.5006954102920723, "type": "PoissonSampledDpEvent"}, "type": "SelfComposedDpEvent"}], "type": "ComposedDpEvent"}, "version": 1}, "resume": 0, "status": "finished", "steps": 5, "trial": "d06a4c7ee462"}','{"budget": {"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "unit": "record"}, "closed": false, "policy": {"_target_": "accounting.policy.Addition"}, "reserved": {"delta": "0.00001", "epsilon": "1.999743852938991"}}','root@vm','2026-11-22T04:04:16+00:00','a5f6d3ed6b5959be13de6608c1341c0091181f236737751be5e436c065bceef4','26df2af4cd414ac19619a9574b1a355aa4d0bd839ad3205d931551edcf03d776');
INSERT INTO "entries" VALUES(7,'digits','settle','7beb1ecff388','{"attempt": 1, "event": {"event": {"events": [{"count": 5, "event": {"event": {"noise_multiplier": 3.44, "type": "GaussianDpEvent"}, "sampling_probability": 0.5006954102920723, "type": "PoissonSampledDpEvent"}, "type": "SelfComposedDpEvent"}], "type": "ComposedDpEvent"}, "version": 1}, "resume": 0, "status": "finished", "steps": 5, "trial": "b9bb2f020d68"}','{"budget": {"adjacency": "add_or_remove_one", "delta": 0.0001, "epsilon": 24.0, "unit": "record"}, "closed": false, "policy": {"_target_": "accounting.policy.Addition"}, "reserved": {"delta": "0.00001", "epsilon": "1.999743852938991"}}','root@vm','2026-11-22T04:04:16+00:00','26df2af4cd414ac19619a9574b1a355aa4d0bd839ad3205d931551edcf03d776','0a1ae4d29f3058b0318cd94ab87be26b9ad33cab1f99a4751f430812ce8e54ec');
CREATE TABLE schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "schema" VALUES(2);
CREATE INDEX entries_by_account ON entries (account, seq);
CREATE INDEX entries_by_kind ON entries (kind, seq);
CREATE INDEX entries_by_plan ON entries (account, "plan", seq);
CREATE TRIGGER entries_refuse_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_refuse_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_refuse_insert BEFORE INSERT ON entries WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
COMMIT;
