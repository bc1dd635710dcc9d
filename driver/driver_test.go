package driver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

func TestLanes(t *testing.T) {
	var lanes AddressLocks
	var inside, total atomic.Int32
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			leave, err := lanes.Enter(t.Context(), "bmc")
			if err != nil {
				t.Error(err)
				return
			}
			defer leave()
			if i%50 == 0 { // another address is no hindrance
				other, err := lanes.Enter(t.Context(), "other "+string(rune('a'+i/50)))
				if err != nil {
					t.Error(err)
					return
				}
				other()
			}
			if inside.Add(1) != 1 {
				t.Error("two in one lane")
			}
			total.Add(1)
			inside.Add(-1)
		})
	}
	wg.Wait()
	if total.Load() != 200 || len(lanes.lanes) != 0 {
		t.Errorf("%d went through, %d lanes are left", total.Load(), len(lanes.lanes))
	}
}

func TestLaneGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lanes AddressLocks
		leave := must.Get(lanes.Enter(t.Context(), "bmc"))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := lanes.Enter(ctx, "bmc"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		leave()
		again := must.Get(lanes.Enter(t.Context(), "bmc"))(t)
		again()
		if len(lanes.lanes) != 0 {
			t.Error("a lane is left")
		}
	})
	var none *AddressLocks
	leave := must.Get(none.Enter(t.Context(), "bmc"))(t)
	leave()
}

func TestProve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		done, err := PollUntil(t.Context(), func(context.Context) (bool, error) {
			reads++
			if reads < 4 {
				return false, problem.Unavailablef("deaf for a moment")
			}
			return reads == 6, nil
		})
		if !done || err != nil || reads != 6 {
			t.Errorf("%t, %v after %d reads", done, err, reads)
		}
		began := time.Now()
		done, err = PollUntil(t.Context(), func(context.Context) (bool, error) { return false, nil })
		if done || err != nil || time.Since(began) != ProveTimeout {
			t.Errorf("never: %t, %v after %s", done, err, time.Since(began))
		}
		for _, look := range []time.Duration{time.Second, 10 * time.Second} {
			done, err = PollUntil(t.Context(), func(ctx context.Context) (bool, error) {
				select {
				case <-time.After(look):
					return false, nil
				case <-ctx.Done():
					return false, Trouble(ctx.Err())
				}
			})
			// Cut off at its beginning, the last look says nothing; one that hung for long does.
			if done || (err == nil) != (look == time.Second) {
				t.Errorf("looks of %s: %t, %v", look, done, err)
			}
		}
		over := errors.New("the lease is over")
		began = time.Now()
		done, err = PollUntil(WithGate(t.Context(), func() error { return over }), func(ctx context.Context) (bool, error) { return false, Trouble(CheckLease(ctx)) })
		if done || !errors.Is(err, over) || !problem.Is(err, problem.Unavailable) || time.Since(began) != 0 {
			t.Errorf("behind a shut gate: %t, %v after %s", done, err, time.Since(began))
		}
		done, err = PollUntil(t.Context(), func(context.Context) (bool, error) { return false, problem.Invalidf("no") })
		if done || !problem.Is(err, problem.Invalid) {
			t.Errorf("no use: %t, %v", done, err)
		}
	})
}

func TestGate(t *testing.T) {
	if err := CheckLease(t.Context()); err != nil {
		t.Error(err)
	}
	shut := errors.New("the lease is over")
	if err := CheckLease(WithGate(t.Context(), func() error { return shut })); !errors.Is(err, shut) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(WithGate(t.Context(), func() error { return nil }))
	cancel()
	if err := CheckLease(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWireStaysAtHome(t *testing.T) {
	var strays atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strays.Add(1) }))
	defer elsewhere.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/here", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		}
	}))
	defer home.Close()
	base, _ := url.Parse(home.URL)
	client, release := HTTPConfig{Base: base}.Client()
	defer release()
	get := func(c *http.Client, url string) error {
		resp, err := c.Get(url)
		if err == nil {
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
		}
		return err
	}
	for _, url := range []string{home.URL + "/near", home.URL + "/away", elsewhere.URL, home.URL + "/round", strings.Replace(home.URL, "http://", "http://u:p@", 1)} {
		if err := get(client, url); err == nil {
			t.Errorf("%s was followed", url)
		}
	}
	still, release := HTTPConfig{Base: base}.Client()
	defer release()
	if err := get(still, home.URL+"/near"); err == nil {
		t.Error("a redirect was followed that should be the answer")
	}
	if strays.Load() != 0 {
		t.Errorf("%d requests went elsewhere", strays.Load())
	}
}

// TestMeasuredErrors: the meter learns the kind of each error, and that a BMC refused a login, although the caller gets that answer as it is.
func TestMeasuredErrors(t *testing.T) {
	status := http.StatusOK
	bmc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer bmc.Close()
	base, _ := url.Parse(bmc.URL)
	ask := func() (got int, measured error) {
		t.Helper()
		client, release := HTTPConfig{Base: base, Protocol: "redfish", Logins: &Logins{}, LogsIn: func(*http.Request) bool { return true }}.Client()
		defer release()
		calls := 0
		ctx := WithMeter(t.Context(), func(_ context.Context, protocol string, _ time.Duration, err error) {
			measured, calls = err, calls+1
			if protocol != "redfish" {
				t.Errorf("the protocol is %q", protocol)
			}
		})
		req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, bmc.URL, nil))(t)
		resp, err := client.Do(req)
		if err == nil {
			got = resp.StatusCode
			_ = resp.Body.Close()
		}
		if calls != 1 {
			t.Errorf("measured %d times", calls)
		}
		return got, measured
	}
	if got, err := ask(); err != nil || got != http.StatusOK {
		t.Errorf("an answer is measured as %v, %d", err, got)
	}
	status = http.StatusUnauthorized
	if got, err := ask(); !errors.Is(err, ErrLogin) || !problem.Is(err, problem.Invalid) || got != status {
		t.Errorf("a refused login is measured as %v, and the caller gets %d", err, got)
	}
	bmc.Close()
	if _, err := ask(); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a closed port is measured as %v", err)
	}
}

func TestTroubleHidesURLs(t *testing.T) {
	inner := &url.Error{Op: "Get", URL: "http://h/?agent_token=s3cret", Err: &url.Error{Op: "Get", URL: "http://h/?agent_token=s3cret", Err: errors.New("reset, you sent s3cret")}}
	err := Trouble(inner, secret.New("s3cret"))
	if strings.Contains(err.Error(), "s3cret") || !problem.Is(err, problem.Unavailable) {
		t.Error(err)
	}
	if err := Trouble(problem.Invalidf("known")); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}

func TestTroubleInWords(t *testing.T) {
	for want, err := range map[string]error{
		"no answer in time":                                  context.DeadlineExceeded,
		"connection refused: nothing listens there":          &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"the headers of its answer are longer than is read":  errors.New("net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 65536 bytes; aborted"),
		"“the connection broke: malformed MIME header”":      errors.New("net/http: HTTP/1.x transport connection broken: malformed MIME header"),
		"it cut the connection before the end of its answer": errors.Join(io.EOF, io.ErrUnexpectedEOF),
	} {
		got := Trouble(&url.Error{Op: "Get", URL: "http://h/", Err: err})
		if got.Error() != want || !problem.Is(got, problem.Unavailable) {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
	if got := Trouble(context.DeadlineExceeded); !errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("%v hides what it was", got)
	}
}

func TestSaid(t *testing.T) {
	got := Sanitize("a\r\n\tb \x00\x1b[31m\u202e s3cret "+strings.Repeat("é", 500), secret.New("s3cret"), secret.Value{})
	if strings.ContainsAny(got, "\r\n\t\x00\x1b\u202e") || strings.Contains(got, "s3cret") || len([]rune(got)) > sanitizedLength+3 || !strings.HasPrefix(got, "a b [31m ******") {
		t.Errorf("%q", got)
	}
}

func TestPlan(t *testing.T) {
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "images", "kernel"), filepath.Join(dir, "secret")
	must.OK(t, os.MkdirAll(filepath.Dir(inside), 0o700))
	for _, f := range []string{inside, outside} {
		must.OK(t, os.WriteFile(f, nil, 0o600))
	}
	link := filepath.Join(dir, "images", "link")
	must.OK(t, os.Symlink(outside, link))
	files := BootFiles{URL: "http://192.0.2.1/", APIURL: "http://192.0.2.1:6385", Append: "console=ttyS0", Dirs: []string{filepath.Join(dir, "images")}}
	plan := func(n *metal.Node, kernel string, params ...string) (*metal.BootPlan, error) {
		return files.Plan(n, Ramdisk{Kernel: kernel, Image: "https://images.example/r", Params: params}, metal.BootIPXE)
	}
	n := &metal.Node{ID: "n1", DriverInfo: metal.Object{AppendKey: "%default% nomodeset"}}
	p := must.Get(plan(n, "file://"+inside, "rescue=1"))(t)
	if want := []string{"console=ttyS0", "nomodeset", "rescue=1", "ipa-api-url=http://192.0.2.1:6385"}; !slices.Equal(p.Params, want) || p.Kernel != inside || p.URL != "http://192.0.2.1" {
		t.Errorf("plan %+v, want parameters %q", p, want)
	}
	for _, kernel := range []string{"", "kernel", outside, link, filepath.Dir(inside) + "/../secret", "ftp://h/k", "http:///k", "file:kernel", "\x7f:"} {
		if _, err := plan(n, kernel); !problem.Is(err, problem.Invalid) {
			t.Errorf("kernel %q: %v", kernel, err)
		}
	}
	for _, append := range []any{
		"a\nb", "a\x00b", "a${net0/mac}", "a && shell", "a `id`", "a;b", `a"b`, "ipa-api-url=http://evil", "IPA-AGENT-TOKEN=x", "BOOTIF=01", "initrd=x", "-- sh",
		"ipa_api_url=http://evil", "ipa-api_url=http://evil", "ipa-insecure=1", "ipa_ca_file=/x", "ipa-inspection-callback-url=http://evil", "salvor-root-password", "salvor.rescue=channel",
		"ipa-api%default%-url=http://evil", strings.Repeat("x", 3000), 7.0,
	} {
		n := &metal.Node{ID: "n1", InstanceInfo: metal.Object{AppendKey: append}}
		if _, err := plan(n, inside); !problem.Is(err, problem.Invalid) {
			t.Errorf("parameters %q: %v", append, err)
		}
	}
	if _, err := plan(n, inside, "two words"); !problem.Is(err, problem.Invalid) {
		t.Errorf("a parameter with a blank: %v", err)
	}
	files.APIURL = ""
	if _, err := plan(n, inside); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "[ramdisk]listen") {
		t.Errorf("no API to call: %v", err)
	}
}

func TestBootMode(t *testing.T) {
	for _, c := range []struct {
		n    metal.Node
		want string
	}{
		{metal.Node{}, ""},
		{metal.Node{BootMode: "bios"}, "bios"},
		{metal.Node{BootMode: "bios", Properties: metal.Object{"capabilities": "x:y,boot_mode:uefi"}}, "uefi"},
		{metal.Node{InstanceInfo: metal.Object{"capabilities": metal.Object{"boot_mode": "bios"}}, Properties: metal.Object{"capabilities": "boot_mode:uefi"}}, "bios"},
		{metal.Node{BootMode: "strange", Properties: metal.Object{"capabilities": 7.0}}, ""},
	} {
		if got := BootMode(&c.n); got != c.want {
			t.Errorf("%+v: %q, want %q", c.n.Properties, got, c.want)
		}
	}
}

func TestSecureBoot(t *testing.T) {
	on, off := true, false
	instance := func(v string) metal.Object { return metal.Object{"capabilities": metal.Object{"secure_boot": v}} }
	for _, c := range []struct {
		n    metal.Node
		want bool
	}{
		{metal.Node{}, false},
		{metal.Node{SecureBoot: &off}, false},
		{metal.Node{SecureBoot: &on}, true},
		{metal.Node{SecureBoot: &on, BootMode: "bios"}, false},
		{metal.Node{SecureBoot: &on, InstanceInfo: instance("false")}, false},
		{metal.Node{SecureBoot: &on, Properties: metal.Object{"capabilities": "a:b,secure_boot:false"}}, false},
		{metal.Node{InstanceInfo: instance("true")}, true},
		{metal.Node{SecureBoot: &off, InstanceInfo: instance("true")}, false},
		{metal.Node{Properties: metal.Object{"capabilities": "secure_boot:true"}}, false}, // it can, which does not say that it does
	} {
		if got := SecureBoot(&c.n); got != c.want {
			t.Errorf("%+v %+v: %t, want %t", c.n.InstanceInfo, c.n.Properties, got, c.want)
		}
	}
}

func FuzzParams(f *testing.F) {
	for _, seed := range []string{"", "console=ttyS0 quiet", "%default%", "a\nb", "-- x", "ipa-api-url =x"} {
		f.Add(seed)
	}
	files := BootFiles{URL: "http://192.0.2.1", APIURL: "http://192.0.2.1", Append: "d=1"}
	f.Fuzz(func(t *testing.T, text string) {
		n := &metal.Node{ID: "n1", InstanceInfo: metal.Object{AppendKey: text}}
		p, err := files.Plan(n, Ramdisk{Kernel: "/k", Image: "/r"}, metal.BootIPXE)
		if err != nil {
			if !problem.Is(err, problem.Invalid) {
				t.Error(err)
			}
			return
		}
		last := len(p.Params) - 1
		for i, param := range p.Params {
			if strings.ContainsAny(param, " \t\n\r\x00`$;|<>{}\"'\\#") || i < last && metal.ReservedParam(param) || i == last && param != "ipa-api-url=http://192.0.2.1" {
				t.Errorf("%q let %q through", text, param)
			}
		}
	})
}
