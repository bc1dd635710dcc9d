package canary

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/access"
	"salvor/compute"
	"salvor/config"
	"salvor/job"
	"salvor/metal"
	"salvor/repair"
	"salvor/rescue"
	"salvor/secret"
)

// records are all that is stored, and the configuration.
var records = []any{
	metal.Node{}, metal.Port{}, metal.Portgroup{}, metal.Chassis{}, metal.Connector{}, metal.Target{}, metal.Allocation{}, metal.DeployTemplate{}, metal.Runbook{},
	metal.InspectionRule{}, metal.Document{}, metal.Contact{}, metal.Diagnosis{}, metal.Repair{}, repair.Plan{},
	compute.Server{}, compute.Host{}, compute.Cluster{}, compute.Volume{}, compute.Image{}, compute.Flavor{}, compute.Keypair{}, compute.Network{}, compute.JoinToken{},
	compute.Order{}, compute.HostGroup{}, compute.Receipt{}, compute.Plan{}, compute.Move{}, compute.Lease{},
	rescue.Image{}, rescue.Session{}, job.Job{}, job.Event{}, job.Conductor{}, access.Token{}, config.Config{},
}

// telling are names of texts that may hold a secret.
var telling = regexp.MustCompile(`(?i)password|passphrase|secret|token|credential|hash|digest|key|url|args|userdata|metadata|properties|connection|command`)

// suspects are the fields of records that can hold a secret, by "package.Type.Field": values of the type that hides them, objects whose
// keys others choose, JSON, and texts whose name says so.
func suspects() map[string]bool {
	out, seen := map[string]bool{}, map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map && t.Name() == "" {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] || t == reflect.TypeFor[time.Time]() || !strings.HasPrefix(t.PkgPath(), "salvor/") {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			switch of := f.Type; {
			case !f.IsExported():
			case of == reflect.TypeFor[secret.Value](), of == reflect.TypeFor[metal.Object](), of == reflect.TypeFor[json.RawMessage](),
				telling.MatchString(f.Name) && (of.Kind() == reflect.String || of.Kind() == reflect.Map || of.Kind() == reflect.Slice):
				out[strings.TrimPrefix(t.PkgPath(), "salvor/")+"."+t.Name()+"."+f.Name] = true
			default:
				walk(of)
			}
		}
	}
	for _, r := range records {
		walk(reflect.TypeOf(r))
	}
	return out
}

// open are the fields that hold no secret, with the reason. All others are planted.
var open = map[string]string{
	"access.Token.Digest": "a digest", "compute.JoinToken.Digest": "a digest", "compute.Image.Digest": "a digest", "rescue.Source.Digest": "a digest", "rescue.Source.RamdiskDigest": "a digest",
	"compute.Host.Key": "a public key's digest", "compute.JoinToken.UsedKey": "a public key's digest", "compute.Keypair.PublicKey": "a public key", "compute.Server.PublicKey": "a public key",
	"compute.Server.KeyName": "a name", "rescue.Credential.Keys": "public keys", "rescue.Session.HostKey": "a public key", "compute.Result.HostKey": "a public key", "metal.BootPlan.KeyID": "an id", "rescue.Agent.KeyID": "an id",
	"compute.Cluster.URL": "refused with a user or a query", "compute.Cluster.AuthURL": "refused with a user or a query", "metal.Contact.AgentURL": "refused with a user or a query",
	"metal.BootPlan.URL":       "the configuration's, which takes none with a user or a query",
	"compute.Image.Properties": "shown as its owner wrote it", "compute.Server.ImageProperties": "shown as its owner wrote it", "compute.Server.Metadata": "shown as its owner wrote it",
	"compute.Volume.ImageProperties": "shown as its owner wrote it", "compute.Volume.Metadata": "shown as its owner wrote it",
	"metal.Allocation.Extra": "shown as its owner wrote it", "metal.Chassis.Extra": "shown as its owner wrote it", "metal.Connector.Extra": "shown as its owner wrote it",
	"metal.DeployTemplate.Extra": "shown as its owner wrote it", "metal.Node.Extra": "shown as its owner wrote it", "metal.Port.Extra": "shown as its owner wrote it",
	"metal.Portgroup.Extra": "shown as its owner wrote it", "metal.Runbook.Extra": "shown as its owner wrote it", "metal.Target.Extra": "shown as its owner wrote it",
	"metal.Node.NetworkData": "addresses", "metal.Node.RAIDConfig": "disks", "metal.Node.TargetRAID": "disks", "metal.Port.LocalLink": "a switch's port",
	"metal.Port.InternalInfo": "an id of Neutron's", "metal.Portgroup.InternalInfo": "an id of Neutron's", "job.Conductor.Description": "drivers",
	"config.Conductor.FileURLAllowedPaths": "paths", "config.Conductor.RescuePasswordHashAlgorithm": "a word", "config.Secrets.KeyFile": "a path", "config.Site.TokenFile": "a path", "config.TLS.KeyFile": "a path",
	"config.Storage.TgtCommand": "a program's name", "config.Secrets.KeyCommand": "says where a key is, not what it is",
	"config.Keystone.AuthURL": "takes none with a user", "config.Credentials.AuthURL": "takes none with a user",
	"config.Keystone.Password": "its own type hides it, and config's tests hold that", "config.Credentials.Password": "its own type hides it, and config's tests hold that",
	"metal.Repair.Digest": "a digest", "metal.RepairArgs.Digest": "a digest", "metal.RepairConsent.Digest": "a digest", "repair.Plan.Digest": "a digest", "repair.Plan.HostKeys": "public keys",
	"repair.Plan.Commands":             "sealed with its plan, and a test of the store holds that",
	"diagnose.SystemSummary.HostKeys":  "a public key: Sanitize keeps no other text",
	"diagnose.ExaminedSystem.HostKeys": "a public key: Sanitize keeps no other text",
	"diagnose.Evidence.Command":        "sealed with its report, and a test of the store holds that",
	"diagnose.Answer.Command":          "a rule writes it from the paths of programs and the names of accounts; sealed with its report",
	"compute.Result.Examination":       "sealed in a column of its own, and a test of the store holds that",
	"config.Database.Connection":       "its own type hides it, and config's tests hold that", "config.Database.DirectConnection": "its own type hides it, and config's tests hold that",
}

// through are the fields that are filled from what is planted elsewhere, by that bird.
var through = map[string]string{
	"compute.Order.Secret": "a rescue password", "compute.Order.Args": "compute.Server.UserData", "job.Job.Secret": "a rescue password", "job.Job.Args": "metal.Step.Args",
	"job.Job.Result": "metal.Node.DriverInfo", "rescue.Credential.Hash": "a rescue password", "rescue.Credential.LUKSKeys": "a LUKS key", "metal.DiagnoseArgs.LUKSKeys": "a LUKS key", "metal.RepairArgs.LUKSKeys": "a LUKS key", "metal.Node.InternalInfo": "metal.Step.Args",
	"metal.Node.CleanStep": "metal.Step.Args", "metal.Node.DeployStep": "metal.Step.Args", "metal.Node.ServiceStep": "metal.Step.Args",
}

// uncounted are suspects without a row in any table, given the birds that were planted, and rows without a field.
func uncounted(birds []string) (out []string) {
	fields := suspects()
	for f := range fields {
		bird := through[f]
		if bird == "" {
			bird = f
		}
		if open[f] == "" && !slices.Contains(birds, bird) {
			out = append(out, f+" may hold a secret, and no canary is planted there")
		}
	}
	for _, table := range []map[string]string{open, through} {
		for f := range table {
			if !fields[f] {
				out = append(out, f+" is no field of a record any more")
			}
		}
	}
	return out
}
