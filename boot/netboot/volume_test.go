package netboot

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

func sanPlan() metal.VolumePlan {
	path := func(host string, lun int) metal.VolumePath {
		return metal.VolumePath{Host: host, Port: 3260, IQN: "iqn.2010-10.com.example:v", LUN: lun}
	}
	return metal.VolumePlan{
		Initiator: "iqn.2026-01.org.salvor:m1",
		Root: &metal.Volume{
			Type: metal.ISCSI, Paths: []metal.VolumePath{path("192.0.2.1", 1), path("2001:db8::1", 300)},
			Login: metal.Login{Username: "u", Password: secret.New("p w")}, Mutual: metal.Login{Username: "m", Password: secret.New("q")},
		},
		Others: []metal.Volume{{Type: metal.ISCSI, BootIndex: 4, Paths: []metal.VolumePath{path("192.0.2.3", 10)}}},
	}
}

const wantSan = `#!ipxe
set initiator-iqn iqn.2026-01.org.salvor:m1
clear why
sanunhook --drive 0x81 ||
set volume 4
clear username
clear password
clear reverse-username
clear reverse-password
sanhook --drive 0x81 iscsi:192.0.2.3::3260:a:iqn.2010-10.com.example:v || set why ${errno}
isset ${why} && goto failed ||
set volume 0
set username:hex 75
set password:hex 70:20:77
set reverse-username:hex 6d
set reverse-password:hex 71
sanboot --drive 0x80 iscsi:192.0.2.1::3260:1:iqn.2010-10.com.example:v iscsi:[2001:db8::1]::3260:412c:iqn.2010-10.com.example:v || set why ${errno}
clear p1
sanunhook --drive 0x80 ||
sanhook --drive 0x80 iscsi:192.0.2.1::3260:1:iqn.2010-10.com.example:v || set p1 ${errno}
clear p2
sanunhook --drive 0x80 ||
sanhook --drive 0x80 iscsi:[2001:db8::1]::3260:412c:iqn.2010-10.com.example:v || set p2 ${errno}
sanunhook --drive 0x80 ||
:failed
imgfetch --name report failed?volume=${volume}&errno=${why}&p1=${p1}&p2=${p2} || imgfree
imgfree
sleep 5
chain --replace --autofree boot.ipxe || exit 1
`

func TestSanScript(t *testing.T) {
	got, err := sanScript(sanPlan())
	if err != nil || got != wantSan {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := sanScript(metal.VolumePlan{}); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}

// No name and no secret can bring a line of its own into a script, expand or join commands, even if a plan were not held
// to its rules before.
func TestSanScriptTakesNoOrders(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching("[a-z:.]{0,9}(\n|\\$\\{x\\}|\\|\\| shell|;|#|\"| )[a-z]{0,9}"))
	lines := strings.Count(wantSan, "\n")
	rapid.Check(t, func(t *rapid.T) {
		plan := sanPlan()
		plan.Root.Login = metal.Login{Username: text.Draw(t, "user"), Password: secret.New(text.Draw(t, "password"))}
		plan.Others[0].Mutual.Username = text.Draw(t, "mutual")
		if rapid.Bool().Draw(t, "names too") {
			plan.Initiator, plan.Root.Paths[0].Host = text.Draw(t, "initiator"), text.Draw(t, "host")
			plan.Others[0].Paths[0].IQN = text.Draw(t, "iqn")
		}
		script, err := sanScript(plan)
		if err != nil {
			return
		}
		if n := strings.Count(script, "\n"); n != lines {
			t.Fatalf("%d lines:\n%s", n, script)
		}
		if strings.Count(script, "${") != strings.Count(wantSan, "${") || strings.Count(script, "||") != strings.Count(wantSan, "||") || strings.ContainsAny(script, "\r\x00;\"") {
			t.Fatal(script)
		}
	})
}

// volumeServer serves one node that boots from volumes.
func volumeServer(t *testing.T, plan metal.VolumePlan, err error) (get func(name string) (int, string), failed *[]string) {
	t.Helper()
	n := testNode()
	n.Plan.Volumes = true
	failed = new([]string)
	s := must.Get(New(Config{
		Plans:   &plans{node: n},
		Volumes: func(context.Context, *metal.Node) (metal.VolumePlan, error) { return plan, err },
		Failed:  func(_ context.Context, _ *metal.Node, why string) { *failed = append(*failed, why) },
	}))(t)
	return func(name string) (int, string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, metal.FilePrefix+n.Plan.Path+"/"+name, nil))
		return w.Code, w.Body.String()
	}, failed
}

func TestVolumePlanHasAScriptAndNoFiles(t *testing.T) {
	get, _ := volumeServer(t, sanPlan(), nil)
	if code, body := get(metal.BootScript); code != 200 || body != wantSan {
		t.Errorf("%d %s", code, body)
	}
	for _, name := range []string{metal.BootKernel, metal.BootRamdisk, metal.BootISO, metal.BootEFI} {
		if code, _ := get(name); code != 404 {
			t.Errorf("%s: %d", name, code)
		}
	}
}

func TestFailedBootIsTold(t *testing.T) {
	get, failed := volumeServer(t, sanPlan(), nil)
	for _, bad := range []string{"failed", "failed?volume=-1", "failed?volume=a&errno=1"} {
		if code, _ := get(bad); code != 400 {
			t.Errorf("%s: %d", bad, code)
		}
	}
	if code, _ := get("failed?volume=0&errno=0x410d613c"); code != 200 || len(*failed) != 1 || !strings.Contains((*failed)[0], "refuses the login") {
		t.Errorf("%d %v", code, *failed)
	}
	get, failed = volumeServer(t, sanPlan(), nil)
	if get("failed?volume=0&errno=0x0f0a6039&p1=0x0f0a6039&p2=0x410d613c"); len(*failed) != 1 || !strings.Contains((*failed)[0], "portal 1: the portal refuses") || !strings.Contains((*failed)[0], "portal 2: the target refuses the login") {
		t.Error(*failed)
	}
	// Again within two seconds is not told again.
	if get("failed?volume=0&errno=0x4c0a6035"); len(*failed) != 1 {
		t.Error(*failed)
	}
	get, failed = volumeServer(t, metal.VolumePlan{}, problem.Invalidf("the node has no volume connector of type iqn"))
	if code, _ := get(metal.BootScript); code != 503 || len(*failed) != 1 || !strings.Contains((*failed)[0], "type iqn") {
		t.Errorf("%d %v", code, *failed)
	}
}

func TestOtherPlansCannotFail(t *testing.T) {
	n := testNode()
	s := must.Get(New(Config{Plans: &plans{node: n}}))(t)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, metal.FilePrefix+n.Plan.Path+"/failed?volume=0", nil))
	if w.Code != 404 {
		t.Error(w.Code)
	}
}

// TestPlanHasFile: the agent of a ready-made deployment ISO fetches the system image from here, if it lies here.
func TestPlanHasFile(t *testing.T) {
	iso, image := metal.BootPlan{ISO: "/srv/ipa.iso"}, metal.BootPlan{ISO: "/srv/ipa.iso", Image: "/srv/debian.img"}
	for _, c := range []struct {
		plan metal.BootPlan
		name string
		want bool
	}{
		{iso, metal.BootISO, true}, {iso, metal.BootImage, false}, {iso, metal.BootConfigDrive, false}, {iso, metal.BootEFI, false},
		{image, metal.BootImage, true}, {image, metal.BootISO, true}, {image, metal.BootScript, false},
	} {
		if got := planHasFile(&c.plan, c.name); got != c.want {
			t.Errorf("%+v has %s: %t, want %t", c.plan, c.name, got, c.want)
		}
	}
}
