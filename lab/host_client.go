package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"salvor/problem"
)

// HostVerb is what can be done to a VM host of the lab, beside what its BMC can.
type HostVerb string

const (
	// HostOn and HostOff are its power, whatever its BMC says.
	HostOn  HostVerb = "on"
	HostOff HostVerb = "off"
	// HostCut takes its cables to the provisioning and the tenant network out; its storage stays. HostPlug puts them back.
	HostCut  HostVerb = "cut"
	HostPlug HostVerb = "plug"
	// HostFreeze stops every process of it at once, guests too; HostThaw has them go on.
	HostFreeze HostVerb = "freeze"
	HostThaw   HostVerb = "thaw"
)

const hostVerbs = "on, off, cut, plug, freeze or thaw"

// Enter is what goes before a program that is to run inside a host, given to Lab.Command or Lab.Exec. A host that was
// powered off has to be looked up again.
func (h HostStatus) Enter() []string {
	return []string{"nsenter", "-t", strconv.Itoa(h.PID), "-m", "-u", "-n", "-p", "--"}
}

// Host finds one of the lab's VM hosts by its name. NotFound: it has none of that name.
func (l *Lab) Host(ctx context.Context, name string) (HostStatus, error) {
	s, err := l.Status(ctx)
	if err != nil {
		return HostStatus{}, err
	}
	for _, h := range s.Hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return HostStatus{}, problem.NotFoundf("lab %s has no host %q", s.Name, name)
}

// HostDo does something to a VM host and returns when it is done.
func (l *Lab) HostDo(ctx context.Context, name string, verb HostVerb) error {
	_, err := l.ask(ctx, controlRequest{Op: opHost, Machine: name, Args: []string{string(verb)}})
	return err
}

// HostService has a host run a program from now on, as a service: at each boot, and again when it ends. It writes into
// HostStatus.ServiceLog. Without a program there is none any more. env is its environment.
func (l *Lab) HostService(ctx context.Context, name string, args, env []string) error {
	h, err := l.Host(ctx, name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(hostService{Args: args, Env: env})
	if err != nil {
		return fmt.Errorf("service of %s: %w", name, err)
	}
	path := filepath.Join(h.Dir, serviceFile)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("service of %s: %w", name, err)
	}
	return os.Rename(path+".new", path)
}

// KillLibvirt ends a host's libvirt daemon by force; guests go on. The host starts it again at once, or with hold only
// after a call without it.
func (l *Lab) KillLibvirt(ctx context.Context, name string, hold bool) error {
	h, err := l.Host(ctx, name)
	if err != nil {
		return err
	}
	script := "rm -f /" + holdFile
	if hold {
		script = "touch /" + holdFile
	}
	if h.Power == PowerOff {
		return errOff(name, "kill libvirt of")
	}
	args := append(h.Enter(), "sh", "-c", script+"; [ ! -s /"+daemonPIDs+" ] || kill -9 $(cat /"+daemonPIDs+") 2>/dev/null || true")
	if out, err := l.Command(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("kill libvirt of %s: %w: %s", name, err, out)
	}
	return nil
}
