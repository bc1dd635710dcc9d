"""Orders what Ironic's own client of agents can: argv is the agent's URL, its token, the
file of its certificate, and the URL and SHA-256 of an image. Prints one line of JSON."""
import json
import sys
import time
import types

from oslo_config import cfg

from ironic.common import exception
from ironic.conf import CONF
from ironic.drivers.modules import agent_client

CONF(args=[], project="none", default_config_files=[], default_config_dirs=[])
url, token, certificate, image, checksum, uuid, hashed = sys.argv[1:]


class Node(types.SimpleNamespace):
    def as_dict(self, secure=False, mask_configdrive=True):
        return dict(vars(self))


node = Node(
    uuid=uuid, properties={}, driver_info={}, instance_info={"rescue_password": "x", "hashed_rescue_password": hashed},
    driver_internal_info={"agent_url": url, "agent_secret_token": token, "agent_verify_ca": certificate})
client = agent_client.AgentClient()
out = {}


def wait():
    for _ in range(400):
        last = client.get_commands_status(node)[-1]
        if last["command_status"] != "RUNNING":
            return last
        time.sleep(0.05)
    raise SystemExit("the command does not end")


def write(sum):
    info = {"id": "system", "urls": [image], "os_hash_algo": "sha256", "os_hash_value": sum, "disk_format": "raw",
            "container_format": "bare", "stream_raw_images": True, "node_uuid": uuid}
    client.execute_deploy_step({"interface": "deploy", "step": "write_image", "args": {"image_info": info, "configdrive": None}}, node, [])
    return wait()


steps = client.get_clean_steps(node, [])["command_result"]
out["clean"] = sorted(s["step"] for group in steps["clean_steps"].values() for s in group)
node.driver_internal_info["hardware_manager_version"] = steps["hardware_manager_version"]
client.execute_clean_step({"interface": "deploy", "step": "erase_devices_metadata"}, node, [])
out["erase"] = wait()
client.get_deploy_steps(node, [])
out["wrong"] = agent_client.get_command_error(write("0" * 64))
out["write"] = write(checksum)
out["uuids"] = client.get_partition_uuids(node)["command_result"]
out["boot"] = client.install_bootloader(node, root_uuid=None, target_boot_mode="bios")["command_status"]
out["sync"] = client.sync(node)["command_status"]
node.driver_internal_info["hardware_manager_version"] = {"other": "1"}
client.execute_clean_step({"interface": "deploy", "step": "erase_devices_metadata"}, node, [])
out["mismatch"] = wait()["command_status"]
node.driver_internal_info["agent_secret_token"] = "wrong"
try:
    client.sync(node)
except exception.AgentAPIError as e:
    out["token"] = str(e)
node.driver_internal_info["agent_secret_token"] = token
out["rescue"] = client.finalize_rescue(node)["command_status"]
print(json.dumps(out))
