-- The nodes of a project, by number as lists have them, and the allocations of one. Most fleets have no owners, so nodes without any are left out.
CREATE INDEX node_owner ON node (owner, num) WHERE owner <> '';
CREATE INDEX node_lessee ON node (lessee, num) WHERE lessee <> '';
CREATE INDEX allocation_owner ON allocation (owner, num) WHERE owner <> '';
