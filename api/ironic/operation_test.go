package ironic

// operation is what is written down of a route by hand.
type operation struct {
	summary  string
	status   int // of success
	body     object
	optional bool // the body may be left out
	later    bool // or 202 with no answer, where it goes on after that
	answer   object
	query    []any
}

// anything is JSON whose shape the resource itself decides.
var anything = object{}

func objectOf(properties object, required ...string) object {
	o := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

var (
	word   = object{"type": "string"}
	bodies = map[string]object{
		"heartbeat": objectOf(object{
			"callback_url": word, "agent_token": word, "agent_version": object{"type": "string", "x-since": "1.36"}, "agent_verify_ca": object{"type": "string", "x-since": "1.68"},
			"agent_status": object{"type": "string", "x-since": "1.72"}, "agent_status_message": object{"type": "string", "x-since": "1.72"},
		}, "callback_url"),
		"reason":  objectOf(object{"reason": object{"type": "string", "nullable": true}}),
		"power":   objectOf(object{"target": word, "timeout": object{"type": "integer", "minimum": 1, "x-since": "1.27", "description": "seconds"}}, "target"),
		"enabled": objectOf(object{"enabled": object{}}),
		"target":  objectOf(object{"target": object{}}),
		"vif":     objectOf(object{"id": word}, "id"),
		"provision": objectOf(object{
			"target": word, "configdrive": object{}, "clean_steps": object{"type": "array", "items": object{}, "x-since": "1.15"},
			"deploy_steps": object{"type": "array", "items": object{}, "x-since": "1.69"}, "service_steps": object{"type": "array", "items": object{}, "x-since": "1.87"},
			"rescue_password": object{"type": "string", "x-since": "1.38"}, "disable_ramdisk": object{"type": "boolean", "x-since": "1.70"}, "runbook": object{"type": "string", "x-since": "1.92"},
		}, "target"),
	}
)

func named(names ...string) []any {
	var out []any
	for _, name := range names {
		out = append(out, query(name, 1, ""))
	}
	return out
}

// nodeQuery are the arguments of lists of nodes.
func nodeQuery() []any {
	return append(pageQuery(), named("instance_uuid", "associated", "maintenance", "retired", "provision_state", "driver", "resource_class", "conductor_group", "conductor",
		"owner", "lessee", "project", "description_contains", "fault", "chassis_uuid", "shard", "sharded", "parent_node", "include_children", "instance_name", "bmc")...)
}

// operations are the routes that follow from no table of records.
var operations = map[string]operation{
	"GET /v1":                                                {summary: "What v1 holds and the versions that are served", status: 200, answer: anything},
	"GET /v1/lookup":                                         {summary: "Find the node of a booting ramdisk, and what its agent is to know", status: 200, answer: anything, query: named("addresses", "node_uuid")},
	"POST /v1/heartbeat/{node}":                              {summary: "A ramdisk's agent says that it is there", status: 202, body: bodies["heartbeat"]},
	"POST /v1/continue_inspection":                           {summary: "A ramdisk's agent hands over what it found", status: 202, body: anything, answer: anything, query: named("node_uuid")},
	"GET /v1/nodes":                                          {summary: "List nodes", status: 200, answer: listOf("nodes", ref("Node")), query: nodeQuery()},
	"GET /v1/nodes/detail":                                   {summary: "List nodes with every field", status: 200, answer: listOf("nodes", ref("Node")), query: nodeQuery()},
	"POST /v1/nodes":                                         {summary: "Enroll a node", status: 201, body: object{"type": "object", "required": []string{"driver"}}, answer: ref("Node")},
	"GET /v1/nodes/{node}":                                   {summary: "One node", status: 200, answer: ref("Node"), query: named("fields")},
	"PATCH /v1/nodes/{node}":                                 {summary: "Change a node", status: 200, body: patchSchema, answer: ref("Node"), query: named("reset_interfaces")},
	"DELETE /v1/nodes/{node}":                                {summary: "Forget a node", status: 204},
	"GET /v1/nodes/{node}/validate":                          {summary: "Tell by interface whether a node has all that it needs", status: 200, answer: anything},
	"PUT /v1/nodes/{node}/maintenance":                       {summary: "Put a node in maintenance", status: 202, body: bodies["reason"], optional: true},
	"DELETE /v1/nodes/{node}/maintenance":                    {summary: "Take a node out of maintenance", status: 202},
	"GET /v1/nodes/{node}/states":                            {summary: "The states of a node", status: 200, answer: anything},
	"PUT /v1/nodes/{node}/states/power":                      {summary: "Ask for a power state; timeout in seconds", status: 202, body: bodies["power"]},
	"PUT /v1/nodes/{node}/states/provision":                  {summary: "Ask for a provision state by a verb", status: 202, body: bodies["provision"]},
	"PUT /v1/nodes/{node}/states/raid":                       {summary: "Set the wanted RAID configuration", status: 204, body: anything},
	"GET /v1/nodes/{node}/states/console":                    {summary: "Whether the console is on, and where", status: 200, answer: anything},
	"PUT /v1/nodes/{node}/states/console":                    {summary: "Start or stop the console", status: 202, body: bodies["enabled"]},
	"PUT /v1/nodes/{node}/states/boot_mode":                  {summary: "Set the boot mode", status: 202, body: bodies["target"]},
	"PUT /v1/nodes/{node}/states/secure_boot":                {summary: "Set secure boot", status: 202, body: bodies["target"]},
	"GET /v1/nodes/{node}/management/boot_device":            {summary: "What the machine boots from", status: 200, answer: anything},
	"PUT /v1/nodes/{node}/management/boot_device":            {summary: "Set what the machine boots from", status: 204, body: anything},
	"GET /v1/nodes/{node}/management/boot_device/supported":  {summary: "What the machine could boot from", status: 200, answer: anything},
	"PUT /v1/nodes/{node}/management/inject_nmi":             {summary: "Interrupt the processor", status: 204, body: anything, optional: true},
	"GET /v1/nodes/{node}/management/indicators":             {summary: "List the lamps", status: 200, answer: anything},
	"GET /v1/nodes/{node}/management/indicators/{indicator}": {summary: "The state of a lamp", status: 200, answer: anything},
	"PUT /v1/nodes/{node}/management/indicators/{indicator}": {summary: "Switch a lamp", status: 204, body: anything},
	"GET /v1/nodes/{node}/vendor_passthru/methods":           {summary: "List the vendor methods of a node", status: 200, answer: anything},
	"GET /v1/nodes/{node}/traits":                            {summary: "List the traits of a node", status: 200, answer: anything},
	"PUT /v1/nodes/{node}/traits":                            {summary: "Set the traits of a node", status: 204, body: anything},
	"DELETE /v1/nodes/{node}/traits":                         {summary: "Take all traits from a node", status: 204},
	"PUT /v1/nodes/{node}/traits/{trait}":                    {summary: "Add a trait to a node", status: 204, body: anything, optional: true},
	"DELETE /v1/nodes/{node}/traits/{trait}":                 {summary: "Take a trait from a node", status: 204},
	"GET /v1/nodes/{node}/vifs":                              {summary: "List the tenants' ports attached to a node", status: 200, answer: anything},
	"POST /v1/nodes/{node}/vifs":                             {summary: "Attach a tenant's port", status: 204, body: bodies["vif"]},
	"DELETE /v1/nodes/{node}/vifs/{vif}":                     {summary: "Detach a tenant's port", status: 204},
	"GET /v1/nodes/{node}/vmedia":                            {summary: "List the virtual drives of a node", status: 200, answer: anything},
	"POST /v1/nodes/{node}/vmedia":                           {summary: "Insert an image into a virtual drive", status: 204, body: anything},
	"DELETE /v1/nodes/{node}/vmedia":                         {summary: "Take images out of virtual drives", status: 204, query: named("device_types")},
	"GET /v1/nodes/{node}/bios":                              {summary: "List the BIOS settings as last read", status: 200, answer: anything, query: named("fields", "detail")},
	"GET /v1/nodes/{node}/bios/{setting}":                    {summary: "One BIOS setting", status: 200, answer: anything},
	"GET /v1/nodes/{node}/firmware":                          {summary: "List the firmware as last read", status: 200, answer: anything},
	"GET /v1/nodes/{node}/inventory":                         {summary: "What the last inspection found", status: 200, answer: anything},
	"GET /v1/nodes/{node}/history":                           {summary: "What happened to a node", status: 200, answer: anything, query: named("limit", "marker", "sort_key", "sort_dir", "detail")},
	"GET /v1/nodes/{node}/history/{event}":                   {summary: "One row of what happened", status: 200, answer: anything},
	"GET /v1/nodes/{node}/children":                          {summary: "The nodes that are part of a node", status: 200, answer: anything},
	"GET /v1/nodes/{node}/allocation":                        {summary: "The allocation that claims a node", status: 200, answer: ref("Allocation"), query: named("fields")},
	"DELETE /v1/nodes/{node}/allocation":                     {summary: "Give a node back", status: 204},
	"GET /v1/nodes/{node}/volume":                            {summary: "Links to the volume connectors and targets of a node", status: 200, answer: anything},
	"GET /v1/volume":                                         {summary: "Links to volume connectors and targets", status: 200, answer: anything},
	"GET /v1/chassis/{id}/nodes":                             {summary: "List the nodes in a chassis", status: 200, answer: listOf("nodes", ref("Node")), query: nodeQuery()},
	"GET /v1/chassis/{id}/nodes/detail":                      {summary: "List the nodes in a chassis with every field", status: 200, answer: listOf("nodes", ref("Node")), query: nodeQuery()},
	"GET /v1/drivers":                                        {summary: "List hardware types", status: 200, answer: anything, query: named("type", "detail", "fields")},
	"GET /v1/drivers/{driver}":                               {summary: "One hardware type", status: 200, answer: anything, query: named("fields")},
	"GET /v1/drivers/{driver}/properties":                    {summary: "The keys of driver_info that a hardware type understands", status: 200, answer: anything},
	"GET /v1/drivers/{driver}/raid/logical_disk_properties":  {summary: "The properties of logical disks", status: 200, answer: anything},
	"GET /v1/drivers/{driver}/vendor_passthru/methods":       {summary: "List the vendor methods of a hardware type", status: 200, answer: anything},
	"GET /v1/conductors":                                     {summary: "List conductors", status: 200, answer: anything, query: named("limit", "marker", "sort_key", "sort_dir", "fields", "detail")},
	"GET /v1/conductors/{host}":                              {summary: "One conductor", status: 200, answer: anything, query: named("fields")},
	"GET /v1/runbooks/{id}/traits":                           {summary: "List the traits of a runbook", status: 200, answer: anything},
	"PUT /v1/runbooks/{id}/traits":                           {summary: "Set the traits of a runbook", status: 204, body: anything},
	"DELETE /v1/runbooks/{id}/traits":                        {summary: "Take all traits from a runbook", status: 204},
	"PUT /v1/runbooks/{id}/traits/{trait}":                   {summary: "Add a trait to a runbook", status: 204, body: anything, optional: true},
	"DELETE /v1/runbooks/{id}/traits/{trait}":                {summary: "Take a trait from a runbook", status: 204},
	"DELETE /v1/inspection_rules":                            {summary: "Forget every inspection rule", status: 204},
	"GET /v1/shards":                                         {summary: "List shards and how many nodes they have", status: 200, answer: anything},
	"POST /v1/events":                                        {summary: "Tell of events of a network", status: 204, body: anything},
	"GET /v1/nodes/{node}/vendor_passthru":                   {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}, query: named("method")},
	"GET /v1/nodes/{node}/vendor_passthru/{method}":          {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}},
	"POST /v1/nodes/{node}/vendor_passthru":                  {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}, query: named("method")},
	"POST /v1/nodes/{node}/vendor_passthru/{method}":         {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}},
	"PUT /v1/nodes/{node}/vendor_passthru":                   {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}, query: named("method")},
	"PUT /v1/nodes/{node}/vendor_passthru/{method}":          {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}},
	"PATCH /v1/nodes/{node}/vendor_passthru":                 {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}, query: named("method")},
	"PATCH /v1/nodes/{node}/vendor_passthru/{method}":        {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}},
	"DELETE /v1/nodes/{node}/vendor_passthru":                {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}, query: named("method")},
	"DELETE /v1/nodes/{node}/vendor_passthru/{method}":       {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}},
	"GET /v1/drivers/{driver}/vendor_passthru":               {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}, query: named("method")},
	"GET /v1/drivers/{driver}/vendor_passthru/{method}":      {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}},
	"POST /v1/drivers/{driver}/vendor_passthru":              {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}, query: named("method")},
	"POST /v1/drivers/{driver}/vendor_passthru/{method}":     {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}},
	"PUT /v1/drivers/{driver}/vendor_passthru":               {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}, query: named("method")},
	"PUT /v1/drivers/{driver}/vendor_passthru/{method}":      {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}},
	"PATCH /v1/drivers/{driver}/vendor_passthru":             {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}, query: named("method")},
	"PATCH /v1/drivers/{driver}/vendor_passthru/{method}":    {summary: "Call a vendor method", status: 200, later: true, body: anything, optional: true, answer: object{"nullable": true}},
	"DELETE /v1/drivers/{driver}/vendor_passthru":            {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}, query: named("method")},
	"DELETE /v1/drivers/{driver}/vendor_passthru/{method}":   {summary: "Call a vendor method", status: 200, later: true, answer: object{"nullable": true}},
	"GET /v1/nodes/{node}/volume/connectors/{id}":            {summary: "Refused: by /v1/volume", status: 400},
	"POST /v1/nodes/{node}/volume/connectors/{id}":           {summary: "Refused: by /v1/volume", status: 400},
	"PUT /v1/nodes/{node}/volume/connectors/{id}":            {summary: "Refused: by /v1/volume", status: 400},
	"PATCH /v1/nodes/{node}/volume/connectors/{id}":          {summary: "Refused: by /v1/volume", status: 400},
	"DELETE /v1/nodes/{node}/volume/connectors/{id}":         {summary: "Refused: by /v1/volume", status: 400},
	"GET /v1/nodes/{node}/volume/targets/{id}":               {summary: "Refused: by /v1/volume", status: 400},
	"POST /v1/nodes/{node}/volume/targets/{id}":              {summary: "Refused: by /v1/volume", status: 400},
	"PUT /v1/nodes/{node}/volume/targets/{id}":               {summary: "Refused: by /v1/volume", status: 400},
	"PATCH /v1/nodes/{node}/volume/targets/{id}":             {summary: "Refused: by /v1/volume", status: 400},
	"DELETE /v1/nodes/{node}/volume/targets/{id}":            {summary: "Refused: by /v1/volume", status: 400},
}
