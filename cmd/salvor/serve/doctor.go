package serve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"salvor/config"
)

// The levels of a Finding.
const (
	LevelOK   = "ok"
	LevelWarn = "warn"
	LevelFail = "fail"
)

// Finding is the result of one check: its level, what was checked, and what to do about it.
type Finding struct {
	Level string `json:"level"`
	Check string `json:"check"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// doctor looks at a configuration and at the machine that is to serve it.
type doctor struct {
	cfg      *config.Config
	file     string
	findings []Finding
	// runs: a salvor serve of this configuration is running.
	runs bool
	// addresses gives those of an interface; of the machine, unless a test has others.
	addresses func(name string) (interfaceState, error)
}

func (d *doctor) say(level, check, do, format string, args ...any) {
	d.findings = append(d.findings, Finding{level, check, fmt.Sprintf(format, args...), do})
}

func (d *doctor) ok(check, format string, args ...any) { d.say(LevelOK, check, "", format, args...) }

// checkWithin bounds one check: one that hangs must not hide the others.
const checkWithin = 20 * time.Second

// examinations in the order in which they are told.
var examinations = []func(*doctor, context.Context){
	(*doctor).configFile, (*doctor).stateDirectory, (*doctor).keyFile, (*doctor).running, (*doctor).diskSpace, (*doctor).clock, (*doctor).database,
	(*doctor).ports, (*doctor).certificate, (*doctor).ramdisk, (*doctor).netboot, (*doctor).loaders, (*doctor).endpoint, (*doctor).images, (*doctor).services, (*doctor).controllers, (*doctor).traces,
}

// traces fails if this program cannot send the traces that the configuration asks for.
func (d *doctor) traces(context.Context) {
	if err := checkOTLP(); err != nil && d.cfg.OTel.Endpoint != "" {
		d.say(LevelFail, "traces", "", "[otel]endpoint: %v", err)
	}
}

// siteExaminations are those of a site's boot service, which has neither key nor database, and reaches no BMC.
var siteExaminations = []func(*doctor, context.Context){
	(*doctor).configFile, (*doctor).stateDirectory, (*doctor).running, (*doctor).diskSpace, (*doctor).clock,
	(*doctor).centre, (*doctor).ports, (*doctor).netboot, (*doctor).loaders,
}

// Examine checks a configuration and the machine that is to serve it, each check within checkWithin.
func Examine(ctx context.Context, source config.Source) []Finding {
	d := &doctor{file: source.File, addresses: interfaceAddresses}
	cfg, warnings, err := config.Load(source)
	for _, w := range warnings {
		d.say(LevelWarn, "configuration", "change it in the configuration file", "%s", w)
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			d.say(LevelFail, "configuration", "correct it; salvor config sample explains every option", "%s", strings.TrimSpace(line))
		}
		return d.findings
	}
	d.cfg = cfg
	looks := examinations
	if cfg.Site.Centre != "" {
		looks = siteExaminations
	}
	for _, look := range looks {
		bounded, cancel := context.WithTimeout(ctx, checkWithin)
		look(d, bounded)
		cancel()
	}
	return d.findings
}
