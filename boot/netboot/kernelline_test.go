package netboot

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/agent"
	"salvor/driver"
	"salvor/metal"
	"salvor/test/must"
)

const lineURL = "http://192.0.2.1:6385"

// writers are the files that carry a kernel command line: iPXE, ISO (BIOS and, in the UKI or by GRUB, UEFI), HTTP boot by a UKI.
var writers = []struct {
	name   string
	secure bool
}{{"boot.ipxe", false}, {"boot.iso", false}, {"boot.iso", true}, {"boot.efi", false}}

// kernelLines are the lines of plain characters that hold a token, as a kernel gets them.
func kernelLines(file string) (out []string) {
	for from := 0; ; {
		at := strings.Index(file[from:], "ipa-agent-token=")
		if at < 0 {
			return out
		}
		first, last := from+at, from+at
		for first > 0 && file[first-1] >= ' ' && file[first-1] <= '~' {
			first--
		}
		for last < len(file) && file[last] >= ' ' && file[last] <= '~' {
			last++
		}
		line := file[first:last]
		line, _, _ = strings.Cut(line, "  ") // a UKI and GRUB's configuration pad their field with blanks
		line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "kernel --name kernel kernel "), "APPEND "), "set params='")
		out, from = append(out, strings.TrimSuffix(line, " || goto failed")), last
	}
}

// lines serves the plan of a record as each writer renders it, and gives what its kernel gets.
func lines(t testing.TB, srv *Server, p *plans, record, configured string) map[string][]string {
	t.Helper()
	n := &metal.Node{ID: "n1", BootNumber: 3, InstanceInfo: metal.Object{driver.AppendKey: record}}
	plan, err := driver.BootFiles{URL: "http://192.0.2.1", APIURL: lineURL, Append: configured}.Plan(n,
		driver.Ramdisk{Kernel: p.node.Plan.Kernel, Image: p.node.Plan.Ramdisk, Params: []string{"ipa-inspection-callback-url=" + lineURL + "/v1/continue_inspection"}, BootNumber: 3, CarryToken: true}, metal.BootIPXE)
	if err != nil {
		return nil
	}
	plan.Path = testPath
	out := map[string][]string{}
	for _, writer := range writers {
		name := writer.name
		n.Plan = new(*plan)
		n.Plan.SecureBoot = writer.secure
		p.mu.Lock()
		p.node = n.Clone()
		p.mu.Unlock()
		w := httptest.NewRecorder()
		srv.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, metal.FilePrefix+testPath+"/"+name, nil))
		found := kernelLines(w.Body.String())
		if w.Code != http.StatusOK || len(found) == 0 || name == "boot.iso" && len(found) != 2 {
			t.Fatalf("%s of %q, Secure Boot %t: %d, %d command lines in %d bytes", name, record, writer.secure, w.Code, len(found), w.Body.Len())
		}
		out[name] = append(out[name], found...)
	}
	return out
}

func lineServer(t testing.TB) (*Server, *plans) {
	t.Helper()
	needLoaders(t)
	dir := t.TempDir()
	p := &plans{node: testNode()}
	p.node.Plan.Kernel, p.node.Plan.Ramdisk = filepath.Join(dir, "kernel"), filepath.Join(dir, "ramdisk")
	write(t, p.node.Plan.Kernel, "kernel")
	write(t, p.node.Plan.Ramdisk, "ramdisk")
	writeSignedLoaders(t, dir)
	srv := must.Get(New(Config{Plans: p, Token: testTokenOf, Roots: []string{dir}}))(t)
	t.Cleanup(srv.images.close)
	return srv, p
}

func checkLines(t *testing.T, srv *Server, p *plans, record, configured string) (served bool) {
	t.Helper()
	for name, all := range lines(t, srv, p, record, configured) {
		served = true
		line := all[len(all)-1]
		if slices.ContainsFunc(all, func(other string) bool { return other != line }) {
			t.Errorf("%s of %q: two command lines: %.300q", name, record, all)
		}
		got, err := agent.ParseCommandLine(line)
		if err != nil {
			t.Errorf("%s of %q: %v", name, record, err)
			continue
		}
		if len(got.APIURLs) != 1 || got.APIURLs[0] != lineURL || got.Token.Reveal() != testToken || got.Insecure || got.CAFile != "" || got.RootPassword ||
			len(got.InspectionURLs) != 1 || got.InspectionURLs[0] != lineURL+"/v1/continue_inspection?"+metal.ProofArg+"="+metal.FindingsProof(testToken) {
			t.Errorf("%s of %q: the agent reads %+v out of %s", name, record, got, strings.ReplaceAll(line, testToken, "TOKEN"))
		}
	}
	return served
}

// TestRecordsCannotCallAnAgentAway has records name another server in every spelling that a reader of kernel parameters may take.
func TestRecordsCannotCallAnAgentAway(t *testing.T) {
	srv, p := lineServer(t)
	if !checkLines(t, srv, p, "%default% nomodeset", "console=ttyS0") {
		t.Error("a harmless record is not served")
	}
	for _, record := range []string{
		"ipa_api_url=http://evil", "IPA-API_URL=http://evil", "ipa_agent_token=x", "ipa-insecure=1", "ipa_ca_file=/tmp/x", "ipa_inspection_callback_url=http://evil",
		"salvor-root-password", "salvor_root_password=1", "ipa-api%default%-url=http://evil", `"ipa-api-url=http://evil"`,
	} {
		for _, configured := range []string{"", "console=ttyS0", "ipa-"} {
			if checkLines(t, srv, p, record, configured) {
				t.Errorf("%q is served", record)
			}
		}
	}
	if checkLines(t, srv, p, "%default%api-url=http://evil", "ipa-") {
		t.Error("a placeholder makes a reserved name")
	}
}

// FuzzKernelLine joins each writer of a kernel command line to the agent that reads it: whatever a record says,
// the server's URL and the boot's token arrive.
func FuzzKernelLine(f *testing.F) {
	for _, seed := range []string{"", "quiet", "%default% nomodeset", "ipa_api_url=http://evil", "ipa-api%default%-url=http://evil", `a="b ipa-api-url=http://evil"`, "x\tipa-Insecure", "-- ipa-ca-file=/x"} {
		f.Add(seed, "console=ttyS0")
	}
	f.Add("%default%api-url=http://evil", "ipa-")
	srv, p := lineServer(f)
	f.Fuzz(func(t *testing.T, record, configured string) {
		for _, word := range strings.Fields(configured) {
			if metal.ReservedParam(word) && word != "ipa-" {
				t.Skip("the operator's own choice")
			}
		}
		checkLines(t, srv, p, record, configured)
	})
}
