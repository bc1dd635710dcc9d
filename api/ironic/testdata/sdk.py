# What openstacksdk does with the bare metal API, from creation to the verbs.
import sys

import openstack

url = sys.argv[1]
b = openstack.connect(auth_type="none", auth={"endpoint": url}, baremetal_endpoint_override=url).baremetal

n = b.create_node(driver="fake-hardware", name="sdk1", driver_info={"fake_password": "hush"}, provision_state="enroll")
assert n.provision_state == "enroll" and n.driver_info == {"fake_password": "******"} and n.power_interface == "fake", n
assert [x.name for x in b.nodes(details=True, limit=1)] == ["sdk1"]
assert [x.name for x in b.nodes(fields=["name", "uuid"])] == ["sdk1"]

n = b.update_node(n, extra={"a": 1}, owner="me")
assert n.extra == {"a": 1} and n.owner == "me"
n = b.patch_node(n, [{"op": "add", "path": "/extra/b", "value": 2}])
assert n.extra == {"a": 1, "b": 2}

p = b.create_port(node_uuid=n.id, address="52:54:00:00:00:0A")
assert p.address == "52:54:00:00:00:0a"
assert [x.id for x in b.ports(details=True, node=n.id)] == [p.id]

valid = b.validate_node(n, required=("power", "deploy"))
assert valid["power"].result and valid["bios"].result is None, valid
b.set_node_maintenance(n, "because")
assert b.get_node(n.id).maintenance_reason == "because"
b.unset_node_maintenance(n)

assert sorted(d.name for d in b.drivers(details=True)) == ["fake-hardware", "redfish"]
assert b.get_driver("redfish").default_power_interface == "redfish"
assert [c.hostname for c in b.conductors()] == ["cond1"]
assert "redfish" in b.get_conductor("cond1").drivers

b.add_node_trait(n, "CUSTOM_A")
assert b.get_node(n.id).traits == ["CUSTOM_A"]
b.set_node_traits(n, ["CUSTOM_B"])
b.remove_node_trait(n, "CUSTOM_B")
assert b.get_node(n.id).traits == []
assert b.list_node_vifs(n) == []

try:
    b.set_node_provision_state(n, "rescue", rescue_password="x")
    raise AssertionError("rescued in enroll")
except openstack.exceptions.BadRequestException as e:
    assert "can not be performed on node" in str(e), e
try:
    b.get_node("nope")
    raise AssertionError("found nope")
except openstack.exceptions.NotFoundException as e:
    assert "could not be found" in str(e), e

b.delete_port(p.id, ignore_missing=False)
b.delete_node(n.id, ignore_missing=False)
assert list(b.nodes()) == []
