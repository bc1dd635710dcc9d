package config

import (
	"strings"
	"testing"
)

// TestIdleOptionsAreRefused: a value that salvor would not follow is refused with the reason; the default, as Ironic's sample file has it, is taken.
func TestIdleOptionsAreRefused(t *testing.T) {
	for option, values := range map[string][2]string{
		"[conductor]\npower_failure_recovery_interval": {"300", "600"}, "[agent]\nmax_command_attempts": {"3", "5"},
	} {
		if _, warnings, err := load(t, option+" = "+values[0]+"\n"); err != nil || len(warnings) > 0 {
			t.Errorf("%s at its default: %v, %v", option, err, warnings)
		}
		_, _, err := load(t, option+" = "+values[1]+"\n")
		if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(option, "\n", "")+" = ") || !strings.Contains(err.Error(), "is refused") || !strings.Contains(err.Error(), "take the option out") {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// TestFormerlyIdleOptionsAreTaken: these are followed, so they are taken without a word.
func TestFormerlyIdleOptionsAreTaken(t *testing.T) {
	c, warnings, err := load(t, `[DEFAULT]
default_resource_class = baremetal
[conductor]
max_concurrent_deploy = 4
max_concurrent_clean = 3
node_history = false
node_history_cleanup_batch_count = 10
[agent]
command_timeout = 7
`)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.Default.DefaultResourceClass != "baremetal" || c.Conductor.MaxConcurrentDeploy != 4 || c.Conductor.MaxConcurrentClean != 3 || c.Conductor.NodeHistory ||
		c.Conductor.NodeHistoryCleanupBatchCount != 10 || c.Agent.CommandTimeout.Seconds() != 7 {
		t.Errorf("%+v %+v", c.Conductor, c.Agent)
	}
}

// TestNodesAtOnce has Ironic's defaults.
func TestNodesAtOnce(t *testing.T) {
	c, _, err := load(t, "")
	if err != nil || c.Conductor.MaxConcurrentDeploy != 250 || c.Conductor.MaxConcurrentClean != 50 {
		t.Errorf("%+v, %v", c.Conductor, err)
	}
}
