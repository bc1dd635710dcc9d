package redfish

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// BIOS is the bios interface: the settings of the firmware and the steps that change them.
type BIOS struct{ Driver *Driver }

var (
	_ driver.BIOS       = BIOS{}
	_ driver.StepRunner = BIOS{}
)

// biosDoc is a Bios resource, or the one of its pending settings.
type biosDoc struct {
	Attributes        map[string]any
	AttributeRegistry string
	Settings          struct {
		SettingsObject      resourceLink
		SupportedApplyTimes []string
	} `json:"@Redfish.Settings"`
	Actions struct {
		Reset struct {
			Target string `json:"target"`
		} `json:"#Bios.ResetBios"`
	}
	path, etag string
}

func (s *bmcSession) bios() (*biosDoc, error) {
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	if sys.Bios.Path == "" {
		return nil, problem.Unsupportedf("the BMC shows no BIOS settings")
	}
	return s.biosAt(sys.Bios.Path)
}

func (s *bmcSession) biosAt(path string) (*biosDoc, error) {
	doc := &biosDoc{path: path}
	etag, err := s.get(path, doc)
	if errors.Is(err, errMissing) {
		err = problem.Unsupportedf("the BMC shows no BIOS settings")
	}
	doc.etag = etag
	return doc, err
}

// biosAttribute is what a registry says of one setting.
type biosAttribute struct {
	AttributeName, Type                        string
	Value                                      []struct{ ValueName string }
	LowerBound, UpperBound                     *float64
	MinLength, MaxLength                       *float64
	ReadOnly, ResetRequired, IsUnique, Visible *bool
}

// BIOSSettings reads the settings with what the BMC's registry says of them, where it has one. Passwords have no value.
func (b BIOS) BIOSSettings(ctx context.Context, n *metal.Node) ([]metal.BIOSSetting, error) {
	var out []metal.BIOSSetting
	err := b.Driver.with(ctx, n, "read BIOS settings", func(s *bmcSession) error {
		doc, err := s.bios()
		if err != nil {
			return err
		}
		registry := s.registry(doc.AttributeRegistry)
		for _, name := range slices.Sorted(maps.Keys(doc.Attributes)) {
			out = append(out, newBIOSSetting(name, doc.Attributes[name], registry[name]))
		}
		return nil
	})
	return out, err
}

func newBIOSSetting(name string, v any, a biosAttribute) metal.BIOSSetting {
	out := metal.BIOSSetting{
		Name: name, AttributeType: a.Type, LowerBound: toWholeNumber(a.LowerBound), UpperBound: toWholeNumber(a.UpperBound),
		MinLength: toWholeNumber(a.MinLength), MaxLength: toWholeNumber(a.MaxLength), ReadOnly: a.ReadOnly, ResetRequired: a.ResetRequired, Unique: a.IsUnique,
	}
	for _, one := range a.Value {
		out.AllowableValues = append(out.AllowableValues, one.ValueName)
	}
	if v != nil && a.Type != "Password" && !isPasswordHash(name, metal.Text(v)) {
		text := metal.Text(v)
		out.Value = &text
	}
	return out
}

// hexDigits is a hash or a salt as BMCs show it.
var hexDigits = regexp.MustCompile(`^[0-9A-Fa-f]{16,}$`)

// isPasswordHash tells a setting that holds the hash of a password or its salt, such as SHA256SetupPassword of Dell: whoever knows it can
// guess the password.
func isPasswordHash(name, value string) bool {
	return strings.Contains(strings.ToLower(name), "password") && hexDigits.MatchString(value)
}

func toWholeNumber(f *float64) *int64 {
	if f == nil || *f != float64(int64(*f)) {
		return nil
	}
	i := int64(*f)
	return &i
}

const (
	registriesPath = "/redfish/v1/Registries"
	maxRegistries  = 200
)

// registry reads what the named registry says of attributes; nil where it cannot be found: the settings are of use without it.
func (s *bmcSession) registry(name string) map[string]biosAttribute {
	at := s.registryFile(name)
	if at == "" {
		return nil
	}
	var file struct {
		Location []struct{ URI string }
	}
	if _, err := s.get(at, &file); err != nil {
		return nil
	}
	for _, at := range file.Location {
		var doc struct {
			RegistryEntries struct{ Attributes []biosAttribute }
		}
		if _, err := s.get(at.URI, &doc); err != nil {
			continue
		}
		out := map[string]biosAttribute{}
		for _, a := range doc.RegistryEntries.Attributes {
			out[a.AttributeName] = a
		}
		return out
	}
	return nil
}

// registryFile is the path of the file that tells where a registry lies. BMCs name it with its version, without, or with another one. Where
// the BIOS names none, the only registry of BIOS attributes is meant. Empty: there is none.
func (s *bmcSession) registryFile(name string) string {
	all, err := s.members(registriesPath, maxRegistries)
	if err != nil && name != "" {
		return registriesPath + "/" + url.PathEscape(name)
	}
	stem, _, _ := strings.Cut(cmp.Or(name, "BiosAttributeRegistry"), ".")
	file, best := "", 0
	for _, member := range all {
		id := path.Base(member.Path)
		of, _, _ := strings.Cut(id, ".")
		if common := commonPrefix(id, name); (of == stem || name == "" && strings.HasPrefix(of, "BiosAttribute")) && (file == "" || common > best) {
			file, best = member.Path, common
		}
	}
	if file == "" && name != "" {
		return registriesPath + "/" + url.PathEscape(name)
	}
	return file
}

// commonPrefix is how many bytes two texts have in common at their begin.
func commonPrefix(a, b string) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return i
}

// Steps are those that Ironic has.
func (b BIOS) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return driver.BIOSSteps, nil
}

// RunStep does one of them.
func (b BIOS) RunStep(ctx context.Context, n *metal.Node, step metal.Step) (bool, error) {
	wait := false
	err := b.Driver.with(ctx, n, "step "+driver.Sanitize(step.Interface+"."+step.Step), func(s *bmcSession) (err error) {
		switch step.Step {
		case "apply_configuration":
			wait, err = b.apply(ctx, n, s, step)
		case "factory_reset":
			wait, err = b.reset(ctx, n, s)
		default:
			err = problem.Invalidf("there is no such step")
		}
		return err
	})
	return wait, err
}

// requestedKey of internal_info remembers what a step has handed to the BMC and when:
// settings that it has dropped since then it did not take, and a volume that is not there yet is not asked for twice.
const (
	requestedKey = "redfish_requested"
	requestedAge = 2 * time.Hour
)

func wasRequested(n *metal.Node, wanted any) bool {
	mark, _ := n.InternalInfo[requestedKey].(map[string]any)
	at, err := time.Parse(time.RFC3339, metal.Text(mark["at"]))
	return err == nil && time.Since(at) < requestedAge && metal.Text(mark["digest"]) == digestRequest(wanted)
}

// digestRequest tells requests apart without their values, which may be passwords.
func digestRequest(wanted any) string {
	text, _ := json.Marshal(wanted) // strings, numbers and booleans: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func recordRequest(n *metal.Node, wanted any) {
	if wanted == nil {
		n.SetInternal(requestedKey, nil)
		return
	}
	n.SetInternal(requestedKey, map[string]any{"at": time.Now().UTC().Format(time.RFC3339), "digest": digestRequest(wanted)})
}

// ForgetStep has the settings handed over anew.
func (b BIOS) ForgetStep(n *metal.Node) {
	recordRequest(n, nil)
	n.SetInternal(resetKey, nil)
}

// apply hands settings over while the machine is off. Called again it turns the machine on, which is when the firmware takes them, and
// then looks how far that is.
func (b BIOS) apply(ctx context.Context, n *metal.Node, s *bmcSession, step metal.Step) (wait bool, err error) {
	wanted, err := driver.WantedSettings(step)
	if err != nil {
		return false, err
	}
	now, err := s.bios()
	if err != nil {
		return false, err
	}
	if err := now.fit(wanted); err != nil {
		return false, err
	}
	for name, v := range wanted {
		if metal.Text(now.Attributes[name]) == "" { // passwords are never shown
			s.hidden = append(s.hidden, secret.New(metal.Text(v)))
		}
	}
	requested := wasRequested(n, wanted)
	if requested && !hasStarted(n, requestedKey) {
		return true, s.startAfterRequest(ctx, n, requestedKey)
	}
	if now.hold(wanted) {
		recordRequest(n, nil)
		return false, nil
	}
	pending := now
	if at := now.Settings.SettingsObject.Path; at != "" {
		if pending, err = s.biosAt(at); err != nil {
			return false, err
		}
	}
	if requested {
		if pending == now || pending.hold(wanted) {
			return true, s.startAfterRequest(ctx, n, requestedKey)
		}
		recordRequest(n, nil)
		return false, problem.Conflictf("the machine has booted and the firmware did not take the settings; look at its event log")
	}
	if err := s.switchOffToChange(ctx, n); err != nil {
		return false, err
	}
	if err := s.writeBIOS(now, pending, wanted); err != nil {
		return false, err
	}
	recordRequest(n, wanted)
	return true, nil
}

// writeBIOS hands settings over, with the time at which they are to be applied where the BMC wants to be told: without it, iDRAC keeps them
// and never makes a job of them (dell/iDRAC-Redfish-Scripting, issue 84).
func (s *bmcSession) writeBIOS(now, pending *biosDoc, wanted map[string]any) error {
	members := []bodyMember{{name: "Attributes", values: []any{wanted}, required: true}}
	when := s.conf.facts.fact(quirkApplyTime)
	if when == "" && slices.Contains(now.Settings.SupportedApplyTimes, "OnReset") {
		when = "OnReset"
	}
	if when != "" {
		members = append(members, bodyMember{name: "@Redfish.SettingsApplyTime", values: []any{map[string]any{"ApplyTime": when}}})
	}
	_, err := negotiate(members, func(body map[string]any) error { return s.patch(pending.path, pending.etag, body) })
	return err
}

// cycle switches the machine off and on, or restarts it where it is not to be switched off.
func (s *bmcSession) cycle(ctx context.Context, n *metal.Node) error {
	if err := s.switchOffToChange(ctx, n); err != nil {
		return err
	}
	return s.startAgain(ctx)
}

// switchOffToChange switches the machine off unless that is forbidden.
func (s *bmcSession) switchOffToChange(ctx context.Context, n *metal.Node) error {
	if n.DisablePowerOff {
		return nil
	}
	return s.setPower(ctx, metal.PowerOff)
}

// startAgain starts the machine, or restarts one that is on, into what the operation has it boot.
func (s *bmcSession) startAgain(ctx context.Context) error {
	if err := driver.BeforeStart(ctx); err != nil {
		return err
	}
	sys, err := s.read()
	if err != nil {
		return err
	}
	if sys.power() == metal.PowerOn {
		return s.single(resetRestart)
	}
	return s.setPower(ctx, metal.PowerOn)
}

// startedKey is the member of a step's record that says that the machine was started after the request.
const startedKey = "started"

func hasStarted(n *metal.Node, key string) bool {
	record, _ := n.InternalInfo[key].(map[string]any)
	return record[startedKey] == true
}

// startAfterRequest starts the machine so that its firmware takes what the record under key was made for. The request and the start are
// two calls of the step: the record is stored between them, so a start that fails or is cut off is repeated alone. A machine that the
// request has switched off and that is on has started already.
func (s *bmcSession) startAfterRequest(ctx context.Context, n *metal.Node, key string) error {
	sys, err := s.read()
	if err != nil {
		return err
	}
	if sys.power() != metal.PowerOn || n.DisablePowerOff && !hasStarted(n, key) {
		err = s.startAgain(ctx)
	} else {
		err = s.setPower(ctx, metal.PowerOn)
	}
	if err != nil || hasStarted(n, key) {
		return err
	}
	record, _ := n.InternalInfo[key].(map[string]any)
	record = maps.Clone(record)
	record[startedKey], record["at"] = true, time.Now().UTC().Format(time.RFC3339)
	n.SetInternal(key, record)
	return nil
}

// fit brings wanted values into the types that the settings have; unknown ones are refused.
func (d *biosDoc) fit(wanted map[string]any) error {
	var unknown []string
	for name, v := range wanted {
		is, ok := d.Attributes[name]
		if !ok {
			unknown = append(unknown, driver.Sanitize(name))
			continue
		}
		text := metal.Text(v)
		switch is.(type) {
		case float64:
			if f, err := strconv.ParseFloat(text, 64); err == nil {
				wanted[name] = f
			}
		case bool:
			if on, err := strconv.ParseBool(text); err == nil {
				wanted[name] = on
			}
		case string:
			wanted[name] = text
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return problem.Invalidf("the firmware has no settings %s", strings.Join(unknown[:min(len(unknown), 10)], ", "))
	}
	return nil
}

func (d *biosDoc) hold(wanted map[string]any) bool {
	for name, v := range wanted {
		if is, ok := d.Attributes[name]; !ok || metal.Text(is) != metal.Text(v) {
			return false
		}
	}
	return true
}

// resetKey of internal_info remembers that the firmware was asked to forget its settings, when, and which it had.
const resetKey = "redfish_bios_reset"

// resetWait is how long the settings may stay as they are after a reset: a machine shows those of its BIOS after POST, and settings that
// were the factory's already never change.
const resetWait = 5 * time.Minute

// reset has the firmware forget its settings at its next boot. Called again it boots the machine, and then looks whether the firmware has
// forgotten them.
func (b BIOS) reset(ctx context.Context, n *metal.Node, s *bmcSession) (wait bool, err error) {
	doc, err := s.bios()
	if err != nil {
		return false, err
	}
	record, _ := n.InternalInfo[resetKey].(map[string]any)
	if at, err := time.Parse(time.RFC3339, metal.Text(record["at"])); err == nil && time.Since(at) < requestedAge {
		started := hasStarted(n, resetKey)
		if err := s.startAfterRequest(ctx, n, resetKey); err != nil || !started {
			return err == nil, err
		}
		taken, err := s.isResetTaken(doc, metal.Text(record["before"]), time.Since(at))
		if err == nil && taken {
			n.SetInternal(resetKey, nil)
		}
		return !taken && err == nil, err
	}
	if doc.Actions.Reset.Target == "" {
		return false, problem.Unsupportedf("the BMC offers no reset of BIOS settings")
	}
	if err := s.switchOffToChange(ctx, n); err != nil {
		return false, err
	}
	if _, err = s.post(doc.Actions.Reset.Target, map[string]any{}); err == nil {
		record := map[string]any{"at": time.Now().UTC().Format(time.RFC3339)}
		if len(doc.Attributes) > 0 { // a machine in POST may show none
			record["before"] = digestRequest(doc.Attributes)
		}
		n.SetInternal(resetKey, record)
	}
	return err == nil, err
}

// isResetTaken tells whether the firmware has forgotten its settings: others are shown, the machine has passed POST since its start, or
// so much time has gone that it must have.
func (s *bmcSession) isResetTaken(now *biosDoc, before string, since time.Duration) (bool, error) {
	if before != "" && len(now.Attributes) > 0 && digestRequest(now.Attributes) != before || since > resetWait {
		return true, nil
	}
	if since < startWait { // a BMC may still show how far the former start was
		return false, nil
	}
	var sys struct {
		BootProgress struct{ LastState string }
	}
	_, err := s.get(s.system, &sys)
	return slices.Contains([]string{"SystemHardwareInitializationComplete", "OSBootStarted", "OSRunning"}, sys.BootProgress.LastState), err
}
