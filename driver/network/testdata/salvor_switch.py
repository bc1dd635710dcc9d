from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class Switch(api.MechanismDriver):
    """Binds every bare metal port whose profile names a switch port."""

    def initialize(self):
        pass

    def bind_port(self, context):
        profile = context.current.get(portbindings.PROFILE) or {}
        links = profile.get("local_link_information") or []
        if context.current[portbindings.VNIC_TYPE] != portbindings.VNIC_BAREMETAL or not links or not links[0].get("port_id"):
            return
        for segment in context.segments_to_bind:
            context.set_binding(segment[api.ID], portbindings.VIF_TYPE_OTHER, {})
            return
