package ironic

import "salvor/access"

// resourceRoutes are the records beside nodes.
func (s *server) resourceRoutes() []route {
	return []route{
		{method: "GET", path: "/v1/nodes/{node}/ports", need: access.Read, do: s.listNodePorts},
		{method: "GET", path: "/v1/nodes/{node}/ports/detail", need: access.Read, do: s.listNodePortsDetail},
		{method: "GET", path: "/v1/ports", need: access.Read, do: s.listPorts},
		{method: "POST", path: "/v1/ports", do: s.createPort},
		{method: "GET", path: "/v1/ports/detail", need: access.Read, do: s.listPortsDetail},
		{method: "GET", path: "/v1/ports/{port}", need: access.Read, do: s.getPort},
		{method: "PATCH", path: "/v1/ports/{port}", do: s.patchPort},
		{method: "DELETE", path: "/v1/ports/{port}", do: s.deletePort},
	}
}
