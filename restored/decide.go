package restored

import (
	"fmt"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
)

// The decisions about all open jobs of a held database.
const (
	// AsItIs has open jobs go on where the restored history left them.
	AsItIs = "as-it-is"
	// EndOperations ends open jobs. What they did is not undone, and no machine is touched.
	EndOperations = "end-operations"
)

// OpenJob is a job that has not ended, with what either decision does about it.
type OpenJob struct {
	job.Job
	// Name is that of the subject; empty: it has none.
	Name string
	// Effects says for each decision what becomes of the job, and in which state its subject is then.
	Effects map[string]string
	// causes holds the cause for each decision that ends the job.
	causes map[string]string
	node   *metal.Node
	// deleting: the subject is a server that somebody wants deleted.
	deleting bool
}

// endedCause is the cause of jobs that a decision for EndOperations ends.
const endedCause = "ended when the restored database was released"

// decide fills in the effects of both decisions. guest is what differs of the job's server.
func (o *OpenJob) decide(guest compute.HeldGuest) {
	o.causes = map[string]string{}
	o.Effects = map[string]string{AsItIs: o.goesOn(), EndOperations: o.ends()}
	if why := compute.EndsAtRelease(&o.Job, guest); why != "" {
		o.causes[AsItIs] = endedCause + ": " + why
		o.Effects[AsItIs] = o.ends() + ": " + why
	}
	if why := compute.GoesOnAtRelease(&o.Job); why != "" {
		o.Effects[EndOperations] = o.goesOn() + ": " + why
	} else {
		o.causes[EndOperations] = endedCause
	}
}

// restarts tells whether the job, if it goes on, begins again at its first action, because the boot of its ramdisk is void. A
// rescue that has handed its credential over cannot restart: only a new request has a password.
func (o *OpenJob) restarts() bool {
	return o.node != nil && o.Class == job.Operation && o.State != job.Undoing && o.node.BootsRamdisk() && (o.Kind != "rescue" || !o.Secret.Empty()) &&
		o.Kind != metal.JobWriteRepair // it knows which disks are half-written
}

// goesOn says what happens if the job goes on.
func (o *OpenJob) goesOn() string {
	text := "goes on at \"" + o.Action + "\""
	switch {
	case o.restarts():
		text = "begins again: the machine is switched off and booted into its ramdisk once more"
	case o.State == job.Undoing:
		text = "goes on to be undone"
	case o.Action == "":
		text = "begins"
	}
	if o.node != nil {
		text += fmt.Sprintf("; the node is %q until then", o.node.ProvisionState)
	}
	return text
}

// ends says what happens if the job ends.
func (o *OpenJob) ends() string {
	switch {
	case o.node != nil && o.Class == job.Operation:
		return fmt.Sprintf("ends; the node is %q, in maintenance until you have looked, and the machine is left as it is", o.node.EndedState(&o.Job))
	case o.node != nil:
		return fmt.Sprintf("ends; the node is %q as before, and the machine is left as it is", o.node.ProvisionState)
	case o.Subject.Kind == compute.Subject("").Kind && o.Class == job.Operation:
		text := "ends; the server shows the failure, and its guest is neither started nor stopped until someone asks for it"
		if o.deleting {
			text += "; the server is not deleted until someone asks for it again"
		}
		return text
	}
	return "ends; what it did stays"
}
