-- The fleet at a glance, without the bodies of its rows: counts, a search by a few letters, those with a fault.

CREATE INDEX node_fleet ON node (provision_state, maintenance, fault);
CREATE INDEX node_search ON node (name, id, instance_uuid);
CREATE INDEX node_faulty ON node (num) WHERE fault <> '';
