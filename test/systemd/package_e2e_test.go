//go:build e2e

package systemd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
)

// formerVersion is below the version of every tree. The packages of that version are made from this tree: release 0.1 had no packages.
const formerVersion = "0.1.0"

// TestPackages follows the Debian packages through their life on a machine: installation, service, upgrade, reboot, removal and purge.
// A rescue from before the upgrade lasts until the purge.
func TestPackages(t *testing.T) {
	packages := t.TempDir()
	m := startMachine(t, packages)
	began := time.Now()
	step := func(name string, do func(*machine)) {
		t.Helper()
		do(m)
		if t.Failed() {
			t.Fatalf("%s failed; the journal ends with\n%s", name, m.journal())
		}
		t.Logf("%4.0f s: %s", time.Since(began).Seconds(), name)
	}
	step("build", func(*machine) { buildPackages(t, packages) })
	step("boot", func(m *machine) { m.awaitBoot(bootTimeout) })
	step("install", installFormer)
	step("serve", startServing)
	step("rescue", rescueNode)
	step("watchdog", restartHungService)
	step("host", joinHost)
	step("upgrade", upgrade)
	step("reboot", rebootMachine)
	step("remove", removePackages)
	step("install again", installAgain)
	step("purge", purgePackages)
}

// journal is the end of what the services wrote.
func (m *machine) journal() string {
	said, err := m.try("journalctl --no-pager -q -n 60 -u salvor -u salvor-host | cut -c 1-300")
	if err != nil {
		said += "\n" + err.Error()
	}
	return said
}

// buildPackages makes the packages of this tree with the release tool, and those of the former version from them. In the directory they are
// new/salvor.deb, new/salvor-host.deb, and the same in old.
func buildPackages(t *testing.T, dir string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	root := must.Get(filepath.Abs("../.."))(t)
	release := filepath.Join(t.TempDir(), "release")
	run("go", "-C", filepath.Join(root, "tools"), "run", "./release", "-arch", runtime.GOARCH, "-root", root, "-out", release)
	for _, name := range []string{"salvor", "salvor-host"} {
		built, err := filepath.Glob(filepath.Join(release, name+"_*.deb"))
		if err != nil || len(built) != 1 {
			t.Fatalf("the release has the packages %v (%v), want one of the name %s", built, err, name)
		}
		for _, sub := range []string{"new", "old"} {
			must.OK(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
		}
		tree := filepath.Join(t.TempDir(), name)
		run("cp", built[0], filepath.Join(dir, "new", name+".deb"))
		run("dpkg-deb", "--raw-extract", built[0], tree)
		makeFormer(t, tree)
		run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, filepath.Join(dir, "old", name+".deb"))
	}
}

// makeFormer turns the tree of a package into one of the former version, whose units and configuration files differ.
func makeFormer(t *testing.T, tree string) {
	t.Helper()
	change := func(file string, f func(string) string) {
		t.Helper()
		path := filepath.Join(tree, file)
		before, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return // it is in the other package
		}
		if err != nil {
			t.Fatal(err)
		}
		after := f(string(before))
		if after == string(before) {
			t.Fatalf("%s: nothing was changed", path)
		}
		if err := os.WriteFile(path, []byte(after), 0); err != nil { // the mode stays
			t.Fatal(err)
		}
	}
	control := must.Get(os.ReadFile(filepath.Join(tree, "DEBIAN/control")))(t)
	_, rest, _ := strings.Cut(string(control), "\nVersion: ")
	version, _, _ := strings.Cut(rest, "\n")
	change("DEBIAN/control", func(text string) string { return strings.ReplaceAll(text, version, formerVersion) })
	if err := os.Remove(filepath.Join(tree, "DEBIAN/md5sums")); err != nil { // the former units have other digests
		t.Fatal(err)
	}
	for _, unit := range []string{"salvor.service", "salvor-host.service"} {
		change("usr/lib/systemd/system/"+unit, func(text string) string { return strings.Replace(text, "Description=", "Description=former ", 1) })
	}
	for _, conffile := range []string{"etc/salvor/salvor.conf", "etc/default/salvor-host"} {
		change(conffile, func(text string) string { return "# A line of the former version.\n" + text })
	}
}

// install is what docs/releases.md says, without a terminal to ask at. Files that the administrator changed stay, as dpkg proposes when it asks.
const install = "apt-get -q -y --no-install-recommends -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confdef install "

// installFormer installs the former packages on the fresh machine, and looks at what they brought.
func installFormer(m *machine) {
	said := m.run(install + "/packages/old/salvor.deb /packages/old/salvor-host.deb")
	for _, hint := range []string{"systemctl enable --now salvor\n", "name the control plane in /etc/default/salvor-host"} {
		if !strings.Contains(said+"\n", hint) {
			m.t.Errorf("the installation does not say %q:\n%s", hint, said)
		}
	}
	m.checkVersion(formerVersion)
	m.wants("getent passwd salvor | cut -d: -f1,5-", "salvor:salvor control plane:/var/lib/salvor:/usr/sbin/nologin")
	m.wants("stat -c '%a %U:%G %n' /usr/bin/salvor /usr/bin/salvor-agent /etc/salvor /etc/salvor/salvor.conf /etc/default/salvor-host /var/lib/salvor",
		strings.Join([]string{"755 root:root /usr/bin/salvor", "755 root:root /usr/bin/salvor-agent", "755 root:root /etc/salvor", "640 root:salvor /etc/salvor/salvor.conf",
			"644 root:root /etc/default/salvor-host", "700 salvor:salvor /var/lib/salvor"}, "\n"))
	for _, unit := range []string{"salvor", "salvor-site", "salvor-host"} {
		m.wantsUnit(unit, "UnitFileState=disabled", "ActiveState=inactive")
	}
	m.wants("zcat /usr/share/man/man1/salvor-node-rescue.1.gz | grep -c '^.SH NAME'", "1")
	m.wants("source /usr/share/bash-completion/completions/salvor; complete -p salvor", "complete -o default -F __start_salvor salvor")
	m.wants("head -1 /usr/share/zsh/vendor-completions/_salvor", "#compdef salvor")
	m.wants("grep -c '^complete -c salvor' /usr/share/fish/vendor_completions.d/salvor.fish >/dev/null; echo $?", "0")
}

// checkVersion compares what dpkg knows with the version; empty: that of this tree.
func (m *machine) checkVersion(version string) {
	m.t.Helper()
	if version == "" {
		version = m.run("dpkg-deb -f /packages/new/salvor.deb Version")
	}
	m.wants("dpkg-query -W -f '${db:Status-Status} ${Version}\\n' salvor salvor-host", fmt.Sprintf("installed %[1]s\ninstalled %[1]s", version))
	if said := m.run("salvor version"); !strings.HasPrefix(said, "salvor ") || !strings.Contains(said, "(commit ") {
		m.t.Errorf("salvor version: %q", said)
	}
}

// startServing changes the configuration and starts the control plane.
func startServing(m *machine) {
	m.run("sed -i '/^\\[hosts\\]/a listen = 127.0.0.1:6386' /etc/salvor/salvor.conf")
	m.run("systemctl enable --now salvor")
	// systemctl has waited for the service to say that it is ready, so the API answers at the first try.
	m.run("salvor driver list")
	m.checkServing()
	m.wantsUnit("salvor", "WatchdogUSec=1min")
}

// checkServing looks at the service as systemd sees it.
func (m *machine) checkServing() {
	m.t.Helper()
	m.until("systemctl show -P StatusText salvor", "serving api, conductor, netboot")
	m.wantsUnit("salvor", "ActiveState=active", "UnitFileState=enabled", "Type=notify", "NeedDaemonReload=no")
	m.wants("stat -c %U /proc/$(systemctl show -P MainPID salvor)", "salvor")
}

// rescueNode rescues a node of fake hardware.
func rescueNode(m *machine) {
	m.run("salvor node create --driver fake-hardware --name m1")
	m.run("salvor node manage m1 --wait=60")
	m.run("salvor node adopt m1 --wait=60")
	m.run("echo a password | salvor node rescue m1 --rescue-password-file - --wait=60")
	m.checkRescue()
}

func (m *machine) checkRescue() {
	m.t.Helper()
	m.wants("salvor node show m1 -f value -c provision_state", "rescue")
}

// restartHungService stops the process, as a hang would: systemd must notice, end it and start it again.
func restartHungService(m *machine) {
	m.run("mkdir -p /run/systemd/system/salvor.service.d && printf '[Service]\\nWatchdogSec=10\\n' >/run/systemd/system/salvor.service.d/test.conf")
	m.run("systemctl daemon-reload && systemctl restart salvor")
	before := m.run("systemctl show -P MainPID salvor")
	m.run("kill -STOP " + before)
	m.until("systemctl show -P NRestarts salvor", "1")
	m.until("systemctl show -P ActiveState salvor", "active") // it counts a restart when it begins
	m.checkServing()
	if after := m.run("systemctl show -P MainPID salvor"); after == before || after == "0" {
		m.t.Errorf("the process after the watchdog is %s, as before", after)
	}
	m.wants(`journalctl -q --no-pager -u salvor | grep -c "salvor.service: Failed with result 'watchdog'"`, "1")
	m.run("rm -r /run/systemd/system/salvor.service.d && systemctl daemon-reload && systemctl restart salvor")
	m.checkServing()
	m.checkRescue()
}

// joinHost starts the agent of VM hosts. It needs no libvirt to join.
func joinHost(m *machine) {
	m.run("salvor host token create -f value -c token >/etc/salvor/host.token")
	m.run(`echo 'SALVOR_HOST_OPTIONS="--controller https://127.0.0.1:6386 --name vm1 --join-file /etc/salvor/host.token"' >>/etc/default/salvor-host`)
	m.run("systemctl enable --now salvor-host")
	m.checkHost()
}

// checkHost waits for the host to renew its lease.
func (m *machine) checkHost() {
	m.t.Helper()
	m.wantsUnit("salvor-host", "ActiveState=active", "UnitFileState=enabled", "Type=notify", "WatchdogUSec=1min", "NeedDaemonReload=no")
	m.until("salvor host show vm1 -f value -c state", "up")
}

// upgrade installs the packages of this tree over the former ones.
func upgrade(m *machine) {
	before := m.run("systemctl show -P MainPID salvor salvor-host")
	configuration := m.run("sha256sum /etc/salvor/salvor.conf /etc/default/salvor-host")
	m.wantsUnit("salvor", "Description=former salvor, a control plane that brings machines back")
	said := m.run(install + "/packages/new/salvor.deb /packages/new/salvor-host.deb 2>&1")
	for _, file := range []string{"/etc/salvor/salvor.conf", "/etc/default/salvor-host"} {
		if !strings.Contains(said, "Configuration file '"+file+"'") {
			m.t.Errorf("dpkg does not ask about %s:\n%s", file, said)
		}
	}
	m.checkVersion("")
	m.wants("sha256sum /etc/salvor/salvor.conf /etc/default/salvor-host", configuration)
	m.wants("dpkg --verify salvor salvor-host", "??5?????? c /etc/salvor/salvor.conf\n??5?????? c /etc/default/salvor-host")
	m.wants("stat -c '%a %U:%G' /etc/salvor/salvor.conf", "640 root:salvor")
	m.wants("cat /etc/salvor/salvor.conf.dpkg-dist /etc/default/salvor-host.dpkg-dist | grep -c 'former version' || true", "0")
	m.wantsUnit("salvor", "Description=salvor, a control plane that brings machines back")
	after := m.run("systemctl show -P MainPID salvor salvor-host")
	for _, pid := range strings.Fields(before) {
		if strings.Contains("\n"+after+"\n", "\n"+pid+"\n") {
			m.t.Errorf("the upgrade did not restart both services: they were the processes %q and are %q", before, after)
		}
	}
	m.checkServing()
	m.checkRescue()
	m.checkHost()
}

// rebootMachine: what was enabled starts with the machine, and the rest does not.
func rebootMachine(m *machine) {
	m.reboot()
	m.checkServing()
	m.checkRescue()
	m.checkHost()
	m.wantsUnit("salvor-site", "ActiveState=inactive", "UnitFileState=disabled")
}

// removePackages removes both packages: the services end, and all that they wrote stays.
func removePackages(m *machine) {
	processes := m.run("systemctl show -P MainPID salvor salvor-host")
	m.run("apt-get -q -y -o Dpkg::Use-Pty=0 remove salvor salvor-host")
	for _, pid := range strings.Fields(processes) {
		m.wants("test -e /proc/"+pid+" || echo gone", "gone")
	}
	m.wants("dpkg-query -W -f '${db:Status-Status}\\n' salvor salvor-host", "config-files\nconfig-files")
	m.wantsUnit("salvor", "ActiveState=inactive", "LoadState=not-found")
	m.wantsUnit("salvor-host", "ActiveState=inactive", "LoadState=not-found")
	m.wants("ls /usr/bin/salvor* /usr/lib/systemd/system/salvor* /usr/share/man/man1/salvor* 2>/dev/null || echo none", "none")
	m.wants("stat -c '%a %U:%G %n' /etc/salvor/salvor.conf /var/lib/salvor /var/lib/salvor/salvor.db /var/lib/salvor-host/host.id /etc/default/salvor-host",
		strings.Join([]string{"640 root:salvor /etc/salvor/salvor.conf", "700 salvor:salvor /var/lib/salvor", "600 salvor:salvor /var/lib/salvor/salvor.db",
			"600 root:root /var/lib/salvor-host/host.id", "644 root:root /etc/default/salvor-host"}, "\n"))
}

// installAgain has the packages back on what they left: the rescue is there, and ends.
func installAgain(m *machine) {
	m.run(install + "/packages/new/salvor.deb /packages/new/salvor-host.deb")
	m.run("systemctl start salvor salvor-host")
	m.checkServing()
	m.checkRescue()
	m.checkHost()
	m.run("salvor node unrescue m1 --wait=60")
	m.wants("salvor node show m1 -f value -c provision_state", "active")
}

// purgePackages purges both packages: all goes but what is the administrator's, the disks of guests, and the user, who may own other files.
func purgePackages(m *machine) {
	m.run("install -d -o salvor -g salvor /srv/site && touch /srv/site/plans && ln -s /srv/site /var/lib/salvor-site")
	said := m.run("apt-get -q -y -o Dpkg::Use-Pty=0 purge salvor salvor-host")
	if !strings.Contains(said, "/var/lib/salvor-host stays") {
		m.t.Errorf("the purge does not say that the state of the host stays:\n%s", said)
	}
	m.wants("dpkg-query -W -f '${db:Status-Status}\\n' salvor salvor-host 2>/dev/null || echo unknown", "unknown")
	m.wants("ls -d /var/lib/salvor /etc/salvor/salvor.conf* /etc/default/salvor-host* /etc/systemd/system/multi-user.target.wants/salvor* 2>/dev/null || echo none", "none")
	m.wants("ls -d /etc/salvor/* /srv/site/* /var/lib/salvor-*", "/etc/salvor/host.token\n/srv/site/plans\n/var/lib/salvor-host\n/var/lib/salvor-site")
	m.run("test -s /var/lib/salvor-host/host.id")
	m.wants("getent passwd salvor | cut -d: -f1", "salvor")
	m.wantsUnit("salvor", "LoadState=not-found")
	m.wants("systemctl --failed --no-legend --plain", "")
}
