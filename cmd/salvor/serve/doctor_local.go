package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/api"
	"salvor/boot/ramdisk"
	"salvor/config"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
)

// What the doctor looks at on its own machine.

func (d *doctor) configFile(context.Context) {
	const check = "configuration"
	if d.file == "" {
		d.ok(check, "no file: every option is at its default, or from the environment")
		return
	}
	info, err := os.Stat(d.file)
	switch {
	case err != nil:
		d.say(LevelFail, check, "name a file that is there by --config", "%v", err)
	case info.Mode().Perm()&0o007 != 0:
		d.say(LevelWarn, check, "chmod o= "+d.file, "%s can be read by every user of this machine, and may hold passwords", d.file)
	default:
		d.ok(check, "%s is understood", d.file)
	}
}

func (d *doctor) stateDirectory(context.Context) {
	const check = "state directory"
	dir := d.cfg.Default.StatePath
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.say(LevelWarn, check, "nothing, if salvor serve may make it: it does at its first start", "%s is not there yet", dir)
	case err != nil:
		d.say(LevelFail, check, "let the user that salvor serve runs as read and write it", "%v", err)
	case !info.IsDir():
		d.say(LevelFail, check, "name a directory by [DEFAULT]state_path", "%s is no directory", dir)
	case unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK) != nil:
		d.say(LevelFail, check, fmt.Sprintf("chown it to the user that salvor serve runs as (this is uid %d)", os.Getuid()), "%s cannot be written", dir)
	case info.Mode().Perm()&0o077 != 0:
		d.say(LevelWarn, check, "chmod 700 "+dir, "%s is open to other users of this machine", dir)
	default:
		d.ok(check, "%s is there, and ours alone", dir)
	}
}

func (d *doctor) keyFile(context.Context) {
	const check = "key"
	if d.cfg.Secrets.KeyCommand != "" {
		d.ok(check, "[secrets]key_command prints it; it was not run")
		return
	}
	file := d.cfg.Secrets.KeyFile
	info, err := os.Stat(file)
	database, single := strings.CutPrefix(d.cfg.Database.Connection.Reveal(), "sqlite:")
	_, dbErr := os.Stat(database)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (dbErr == nil || !single):
		d.say(LevelFail, check, "put the key file there that was used with this database: without it nothing that is sealed can be opened", "%s is not there", file)
	case errors.Is(err, fs.ErrNotExist):
		d.say(LevelWarn, check, "nothing: the first start makes it; then keep a copy apart from the database", "%s is not there yet", file)
	case err != nil || unix.Access(file, unix.R_OK) != nil:
		d.say(LevelFail, check, "let the user that salvor serve runs as read it", "%s cannot be read", file)
	case info.Mode().Perm()&0o077 != 0:
		d.say(LevelFail, check, "chmod 600 "+file, "%s can be read by other users of this machine", file)
	default:
		d.ok(check, "%s is there, and ours alone", file)
	}
}

// running tells whether salvor serve of this state directory runs: it holds the lock.
func (d *doctor) running(context.Context) {
	f, err := os.Open(filepath.Join(d.cfg.Default.StatePath, "lock"))
	if err != nil {
		return
	}
	defer f.Close()
	if d.runs = errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK); d.runs {
		d.ok("process", "a salvor serve with this state directory runs")
	}
}

// Bounds of free space.
const (
	littleSpace = 2 << 30
	noSpace     = 200 << 20
)

func (d *doctor) diskSpace(context.Context) {
	seen := map[string]bool{}
	for _, dir := range []string{d.cfg.Default.StatePath, imageDirectory(d.cfg)} {
		var at unix.Statfs_t
		for dir != "/" && unix.Statfs(dir, &at) != nil {
			dir = filepath.Dir(dir)
		}
		if seen[dir] || unix.Statfs(dir, &at) != nil {
			continue
		}
		seen[dir] = true
		free := at.Bavail * uint64(at.Bsize)
		text := fmt.Sprintf("%s has %.1f GiB free", dir, float64(free)/(1<<30))
		const do = "make room: a full disk stops every change"
		switch {
		case free < noSpace:
			d.say(LevelFail, "disk space", do, "%s", text)
		case free < littleSpace || at.Files > 0 && at.Ffree < 1000:
			d.say(LevelWarn, "disk space", do, "%s, and room for %d more files", text, at.Ffree)
		default:
			d.ok("disk space", "%s", text)
		}
	}
}

func (d *doctor) clock(context.Context) {
	const check, do = "clock", "let chrony, ntpd or systemd-timesyncd keep it: agents' certificates and tokens have times in them"
	var state unix.Timex
	status, err := unix.Adjtimex(&state)
	switch {
	case err == nil && status == unix.TIME_ERROR:
		d.say(LevelWarn, check, do, "nobody keeps it: the kernel calls it unsynchronized")
	case time.Now().Year() < 2025:
		d.say(LevelFail, check, do, "it says %s", record.Moment(time.Now()))
	default:
		d.ok(check, "it is kept")
	}
}

func (d *doctor) database(ctx context.Context) {
	const check = "database"
	base, err := store.OpenDatabase(ctx, d.cfg.Database.Direct(), store.Look)
	if problem.Is(err, problem.NotFound) {
		d.say(LevelWarn, check, "nothing: salvor serve makes it at its first start", "%v", err)
		return
	}
	if err != nil {
		d.say(LevelFail, check, "see that the server runs, and user, password and name in [database]connection", "%v", err)
		return
	}
	defer base.Close()
	if err := base.CheckFile(); err != nil {
		d.say(LevelFail, check, "remove the other names of the file; salvor serve does not start before", "%v", err)
		return
	}
	s, err := base.Schema(ctx)
	if err != nil {
		d.say(LevelFail, check, "look at it with salvor db status", "%v", err)
		return
	}
	text := fmt.Sprintf("%s answers; its tables are %s (schema %d, this program knows %d)", base.URL(), s.State(), s.Version, s.Program)
	switch {
	case s.State() == store.SchemaUnreleased:
		d.say(LevelFail, check, "restore a backup that a release made, or begin with an empty database", "%v", s.Serveable())
	case s.Serveable() != nil:
		d.say(LevelFail, check, "run the newer release of salvor", "%s", text)
	case len(s.Pending) > 0:
		d.say(LevelWarn, check, "salvor db migrate", "%s", text)
	default:
		d.ok(check, "%s", text)
	}
	if limit := d.cfg.Conductor.BacklogLimit; s.Serveable() == nil && len(s.Pending) == 0 {
		switch n, age, err := base.Backlog(ctx); {
		case err != nil:
			d.say(LevelFail, "backlog", "look at the database with salvor db status", "%v", err)
		case limit > 0 && n >= limit:
			d.say(LevelWarn, "backlog", "see that enough conductors run, or raise [conductor]workers_pool_size on them; [conductor]backlog_limit bounds the backlog",
				"%d accepted operations wait for a conductor, the oldest for %s: new ones are refused with 503", n, age.Round(time.Second))
		case n > 0:
			d.ok("backlog", "%d accepted operations wait for a conductor", n)
		}
	}
	if i, err := base.Incarnation(ctx); err == nil && i.Held != nil {
		d.say(LevelFail, check, record.HeldNext, "nothing acts on it since %s: %s (%s)", record.Moment(i.Held.Since), i.Held.Summary(), i.Held.Detail)
	}
	d.witness()
	if at, err := base.Clock(ctx); err == nil && !at.IsZero() && time.Since(at).Abs() > 2*time.Second {
		d.say(LevelWarn, "clock", "let both clocks be kept", "it differs from the database server's by %s", time.Since(at).Round(time.Second))
	}
}

// witness checks that the witness file would survive the restore of a state directory.
func (d *doctor) witness() {
	const check = "witness file"
	path := d.cfg.Database.WitnessFile
	if path == "" {
		return
	}
	inside, err := filepath.Rel(resolveSymlinks(d.cfg.Default.StatePath), resolveSymlinks(filepath.Dir(path)))
	switch {
	case err == nil && inside != ".." && !strings.HasPrefix(inside, "../"):
		d.say(LevelFail, check, "name a file outside of the state directory by [database]witness_file", "%s is inside of the state directory %s: who puts that back puts the witness back too", path, d.cfg.Default.StatePath)
	case unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK) != nil:
		d.say(LevelFail, check, "make the directory, and let the user that salvor serve runs as write it", "%s cannot be written", filepath.Dir(path))
	default:
		d.ok(check, "%s is outside of the state directory", path)
	}
}

// resolveSymlinks follows symbolic links if the path exists.
func resolveSymlinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// ports tells whether the addresses that are to be listened on can be had, or are ours already.
func (d *doctor) ports(ctx context.Context) {
	for _, at := range configuredListeners(d.cfg) {
		if at.role != "" && !hasRole(d.cfg, at.role) {
			continue
		}
		check := "port of the " + at.name + " listener"
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.address)
		switch {
		case err == nil:
			_ = l.Close()
			d.ok(check, "%s can be had", at.address)
		case errors.Is(err, syscall.EADDRINUSE) && d.runs:
			d.ok(check, "%s is in use, as it should be while salvor serve runs", at.address)
		case errors.Is(err, syscall.EADDRINUSE):
			d.say(LevelFail, check, "stop what listens there (ss -ltnp), or choose another port", "%s is in use, and not by this salvor serve", at.address)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			d.say(LevelFail, check, "give this machine the address, or name another", "%s is no address of this machine", at.address)
		default:
			d.say(LevelFail, check, "see that this user may listen there", "%v", err)
		}
	}
}

func (d *doctor) certificate(context.Context) {
	const check = "certificate"
	c := d.cfg.API.TLS
	if !hasRole(d.cfg, config.RoleAPI) {
		return
	}
	if !c.Enabled {
		if ip := d.cfg.API.HostIP; !ip.IsLoopback() {
			d.say(LevelWarn, check, "set [api]enable_ssl_api, or end TLS in a proxy in front", "the API speaks plain HTTP on %s", ip)
		}
		return
	}
	files, err := api.NewCertificates(api.CertificateFiles{Cert: c.CertFile, Key: c.KeyFile, CA: c.CAFile}, machineClock(), slog.New(slog.DiscardHandler))
	if err != nil {
		d.say(LevelFail, check, "see [api]cert_file, [api]key_file and [api]ca_file", "%v", err)
		return
	}
	ends, _, warning := files.State()
	switch {
	case !machineClock()().Before(ends):
		d.say(LevelFail, check, "renew it: it is read again without a restart", "%s", warning)
	case warning != "":
		d.say(LevelWarn, check, "renew it: it is read again without a restart", "%s", warning)
	default:
		d.ok(check, "%s ends at %s", c.CertFile, record.Moment(ends))
	}
}

func (d *doctor) ramdisk(context.Context) {
	const check = "ramdisk"
	kernel, image := rescueImages(d.cfg)
	build := "salvor ramdisk build --out " + ramdiskDir(d.cfg)
	byArch, _ := imagesByArch(d.cfg)
	if kernel == "" && image == "" && len(byArch) == 0 {
		d.say(LevelWarn, check, build+", or set [conductor]rescue_kernel and rescue_ramdisk", "there is none: only nodes that name one of their own can be rescued")
		return
	}
	if wrong := configuredRamdisks(d.cfg); len(wrong) > 0 {
		for _, err := range wrong {
			d.say(LevelFail, check, build+", or correct the configuration", "%v", err)
		}
		return
	}
	if kernel == "" {
		d.ok(check, "the ramdisks of %s can be read; nodes of another architecture name their own", strings.Join(slices.Sorted(maps.Keys(byArch)), ", "))
		return
	}
	if m, err := ramdisk.ReadManifest(filepath.Dir(localPath(image))); err == nil && len(m.Files) == 0 {
		d.say(LevelWarn, check, "salvor ramdisk build --out "+filepath.Dir(image), "the manifest beside %s names no files", image)
		return
	}
	d.ok(check, "%s and %s can be read", kernel, image)
}

// Numbers of file systems that several machines may share (statfs(2)).
var sharedSystems = map[int64]string{
	0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x00c36400: "Ceph", 0x65735546: "FUSE", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x0bd00bd0: "Lustre",
}

func (d *doctor) images(context.Context) {
	const check = "images"
	dir := imageDirectory(d.cfg)
	if isSQLite(d.cfg.Database.Connection.Reveal()) {
		d.ok(check, "%s; one process serves a SQLite database, so nobody else needs to see it", dir)
		return
	}
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		d.say(LevelWarn, check, "make it, on storage that all processes of the database share", "[image]path %s: %v", dir, err)
		return
	}
	if name := sharedSystems[int64(at.Type)]; name != "" {
		d.ok(check, "%s lies on %s", dir, name)
		return
	}
	d.say(LevelWarn, check, "put [image]path on storage that all processes of the database see, or give images as URLs; one process alone needs nothing",
		"%s lies on a disk of this machine: other processes of this database do not see it", dir)
}

// endpoint asks the address that ramdisks call.
func (d *doctor) endpoint(ctx context.Context) {
	const check = "address for ramdisks"
	at := ramdiskURL(d.cfg)
	if at == "" {
		d.say(LevelWarn, check, "set [service_catalog]endpoint_override to the URL under which machines reach this one", "nothing says under which address booting machines reach salvor")
		return
	}
	if u, err := url.Parse(at); err == nil && isLoopback(u.Hostname()) {
		d.say(LevelWarn, check, "set [service_catalog]endpoint_override to an address that machines reach", "%s is this machine's own: no other reaches it", at)
		return
	}
	level := LevelFail
	if !d.runs {
		level = LevelWarn // nobody need answer yet
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	d.asks(ctx, client, check, "see that [service_catalog]endpoint_override leads to the listener for ramdisks ([ramdisk]listen), past every firewall", at, level)
}
