package agent

import "encoding/json"

// Commands about steps, in three families of the same form. The get commands answer
// at once with a StepList; the execute commands run in the background and answer a
// StepOutcome.
const (
	GetCleanSteps      = "clean.get_clean_steps"
	ExecuteCleanStep   = "clean.execute_clean_step"
	GetDeploySteps     = "deploy.get_deploy_steps"
	ExecuteDeployStep  = "deploy.execute_deploy_step"
	GetServiceSteps    = "service.get_service_steps"
	ExecuteServiceStep = "service.execute_service_step"
)

// StepsParams are the params of the get commands. Node and Ports are as the API shows
// them; the agent reads properties, instance_info and driver_internal_info of the node.
type StepsParams struct {
	Node  json.RawMessage `json:"node"`
	Ports json.RawMessage `json:"ports"`
}

// Step is one clean, deploy or service step, as listed or as ordered.
type Step struct {
	Step            string             `json:"step"`
	Interface       string             `json:"interface"`
	Priority        int                `json:"priority"`
	RebootRequested bool               `json:"reboot_requested"`
	Abortable       bool               `json:"abortable"`
	ArgsInfo        map[string]ArgInfo `json:"argsinfo,omitempty"`
	RequiresRamdisk *bool              `json:"requires_ramdisk,omitempty"`
	// Args are in orders only.
	Args map[string]json.RawMessage `json:"args,omitempty"`
}

// ArgInfo describes an argument of a step.
type ArgInfo struct {
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

// StepList is the outcome of the get commands: one of the lists, by hardware manager.
type StepList struct {
	Clean   map[string][]Step `json:"clean_steps,omitempty"`
	Deploy  map[string][]Step `json:"deploy_steps,omitempty"`
	Service map[string][]Step `json:"service_steps,omitempty"`
	// Version is sent back with each order of the same run: an agent whose own
	// differs (it has been restarted from another image) answers CleanVersionMismatch.
	Version map[string]string `json:"hardware_manager_version"`
}

// StepParams are the params of the execute commands. One of the versions is given;
// null leaves the check out.
type StepParams struct {
	Step           Step              `json:"step"`
	Node           json.RawMessage   `json:"node"`
	Ports          json.RawMessage   `json:"ports"`
	CleanVersion   map[string]string `json:"clean_version,omitempty"`
	DeployVersion  map[string]string `json:"deploy_version,omitempty"`
	ServiceVersion map[string]string `json:"service_version,omitempty"`
}

// StepOutcome is the outcome of the execute commands; the results are the step's own,
// often null.
type StepOutcome struct {
	CleanResult   json.RawMessage `json:"clean_result,omitempty"`
	CleanStep     *Step           `json:"clean_step,omitempty"`
	DeployResult  json.RawMessage `json:"deploy_result,omitempty"`
	DeployStep    *Step           `json:"deploy_step,omitempty"`
	ServiceResult json.RawMessage `json:"service_result,omitempty"`
	ServiceStep   *Step           `json:"service_step,omitempty"`
}

// Types of a CommandError that a server tells apart. The code is that of HTTP.
const (
	ErrBusy          = "AgentIsBusy"               // 409: another command runs
	ErrParams        = "InvalidCommandParamsError" // 400
	ErrCommand       = "CommandExecutionError"     // 500
	ErrDownload      = "ImageDownloadError"        // 500
	ErrChecksum      = "ImageChecksumError"        // 500
	ErrWrite         = "ImageWriteError"           // 500
	ErrImage         = "InvalidImage"              // 500: refused for what is in it
	ErrNoDevice      = "DeviceNotFound"            // 404: no disk fits the hints
	ErrDeployment    = "DeploymentError"           // 500
	ErrCleaning      = "CleaningError"             // 500
	ErrServicing     = "ServicingError"            // 500
	ErrVersion       = "VersionMismatch"           // 409
	ErrErase         = "BlockDeviceEraseError"     // 500
	ErrProtected     = "ProtectedDeviceError"      // 500
	ErrNoSuchStep    = "HardwareManagerMethodNotFound"
	ErrNoSuchCommand = "InvalidCommandError" // 400
)
