# "make" alone lists what can be made.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

export CGO_ENABLED ?= 0
GO ?= go
# No program has the path of its sources in it, so that what one clone compiled serves the next one.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck
GOFILES = $(shell git ls-files --cached --others --exclude-standard '*.go')

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Programs name the commit that they were built from, if git can read it. This overrides a -buildvcs in GOFLAGS.
STAMP = -buildvcs=$(shell git status --porcelain >/dev/null 2>&1 && echo true || echo false)
# A look at the state of the clone writes nothing into .git, whose time of change Go's test cache may depend on.
export GIT_OPTIONAL_LOCKS := 0

TAGS ?=
BIN := bin

# A program that did not change keeps its time of change, because Go's test cache runs the tests of a younger program again.
build: ## build bin/salvor, bin/salvor-agent and bin/salvor-lab, static; TAGS=otlp adds the exporter of traces, which releases have
	@said=$$($(GO) build $(STAMP) -tags '$(TAGS)' -ldflags '-s -w' -o build/linked/$(BIN)/ ./cmd/salvor ./cmd/salvor-agent ./cmd/salvor-lab 2>&1) || { echo "$$said"; exit 1; }
	@mkdir -p $(BIN); for program in salvor salvor-agent salvor-lab; do \
		cmp -s build/linked/$(BIN)/$$program $(BIN)/$$program || { cp build/linked/$(BIN)/$$program $(BIN)/$$program.new; mv $(BIN)/$$program.new $(BIN)/$$program; }; done

release: ## write a release into build/release: static programs, Debian packages, container image, modules, checksums
	$(GO) -C tools run ./release -root '$(CURDIR)' -out '$(CURDIR)/build/release'

release-check: ## build the release of the last commit twice, in two places: every file must be the same
	test/release.sh

# RUN runs go test and keeps the times of the tests; AGAIN also runs a failed test once more, alone.
RUN := $(GO) run ./test/runner
AGAIN := $(RUN) -again
# WHOLE makes targets as parts of one run: the run forgets former ones, and ends with the tests that passed at their second try only.
WHOLE = +@$(RUN) -new; status=0; SALVOR_PART=1 $(MAKE) --no-print-directory $(1) || status=$$?; $(RUN) -flaky; exit $$status
# ALONE begins a new run where a target is no part of one.
ALONE = @[ -n "$${SALVOR_PART:-}" ] || $(RUN) -new

# The programs of a check name no commit, so that a commit alone does not make a test run again.
check: STAMP := -buildvcs=false
check: BIN := build/check
check: lint build ## lint and unit tests without root and Debian packages, those of changed packages only; it ends with the packages whose tests it left out
	$(RUN) -name check -- -vet=off -p $(AT_ONCE) -parallel 8 -short -- $(UNIT)
	@missing=$$(test/install.sh --missing unit); [ -z "$$missing" ] || echo "check: left out the tests that need the Debian packages $$missing"

test: packages lint build ## lint, unit tests under the race detector, and all sweeps: the README's command
	@nice -n 4 $(MAKE) --no-print-directory -o build test-calling test-sweeps & beside=$$!; status=0; \
		$(MAKE) --no-print-directory -o build test-racing || status=$$?; wait $$beside && exit $$status

ci: ## what CI runs: make test, the stories, and the first tier of e2e
	$(call WHOLE,prove-packages lint build test-racing ci-rest)

# Stories and real machines mostly wait. The tests without timing of their own fill that time, at a lower priority. A failed story or machine runs
# again when they have ended (see test/runner).
ci-rest: export SALVOR_BESIDE = $(CURDIR)/build/beside
ci-rest: build
	@flock -o $$SALVOR_BESIDE nice -n 4 $(MAKE) --no-print-directory -o build test-calling test-sweeps & beside=$$!; status=0; \
		$(MAKE) --no-print-directory -o build test-stories e2e-first || status=$$?; wait $$beside && exit $$status

prove: export SALVOR_SWEEP := whole
prove: ## all that proves salvor: what CI runs, every real machine, server and client, fuzzing, a release built twice
	$(call WHOLE,prove-packages test test-stories e2e fuzz release-check)

times: ## print the 30 slowest tests and packages of the last run
	@$(RUN) -times

packages: ## install the Debian packages of make test, where they are missing
	@test/install.sh unit demo demo-vm

prove-packages: ## install those of make ci and make prove
	@test/install.sh unit demo demo-vm prove

lint: fmt-check markers vet staticcheck tidy-check ## formatting, what was left undone, vet, staticcheck, go.mod

fmt: ## format the sources
	gofmt -w $(GOFILES)

fmt-check:
	@unformatted=$$(gofmt -l $(GOFILES)); if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi

# What a merge or an author left for later.
markers:
	@! git grep -nE '^(<<<<<<<|>>>>>>>)|\<(TODO|FIXME|XXX)\>' -- ':!Makefile'

vet:
	$(GO) vet -tags e2e,openstack,otlp,upgrade,causes ./...
	$(GO) -C tools vet ./...

# With the tags, because what only e2e tests or traces use is used too.
staticcheck:
	$(STATICCHECK) -tags e2e,openstack,otlp,upgrade,causes ./...
	cd tools && $(GO) tool staticcheck ./...

tidy-check:
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff

test-racing test-calling test-sweeps test-stories mutants causes e2e e2e-first interop chaos soak flaky bench fleet overload strangers lying-agents check: export SALVOR_BIN = $(CURDIR)/$(BIN)

# Compilers, linters and most tests have small heaps for a short time: a collector that waits longer costs a tenth less of all processor time.
# The programs that the stories start have Go's own value.
lint build test-racing test-calling test-sweeps: export GOGC := 300

# Many tests wait more than they compute, so twice as many packages are tested at once as there are processors.
AT_ONCE := $(shell echo $$((2 * $$(nproc))))

# Packages of test/ run the real binary or a whole simulated world; they are stories, not unit tests. So are the two of lab/ that read or build much.
STORIES := ^salvor/(test/|lab/(causes|mutants)$$)
UNIT = $(shell $(GO) list ./... | grep -vE '$(STORIES)')

# SQLite is C, translated, and works in memory of its own: to watch each of its accesses would make most of the time, and could find nothing of ours.
RACE := -race $(foreach module,modernc.org/libc modernc.org/memory modernc.org/sqlite modernc.org/sqlite/lib,-gcflags=$(module)=-race=false)

# Packages that call programs, salvor itself among them, those of an agent's steps, and the rules of a diagnosis share no memory among
# goroutines: their tests run without the race detector, and all others under it. No test runs both ways, but for the sweeps. make soak has all under the race detector.
CALLING := . ./cmd/salvor ./diagnose/... ./agent/disk ./agent/efi ./agent/examine ./agent/image ./agent/inventory ./agent/repair ./agent/sandbox ./agent/step ./boot/media \
	./repair/... ./storage/tgt ./wire/loose ./test/advisory ./test/canary ./lab/causes ./test/crash ./test/fault ./test/gettingstarted ./test/gophercloud \
	./test/metal ./lab/mutants ./test/preflight ./test/recipes ./test/reportschema ./test/runner ./test/sentence ./test/stress ./test/systemd ./test/tenant \
	./test/trouble
# LONGEST are the packages whose tests take longest. They begin first, so that none of them runs alone in the end.
LONGEST := salvor/test/outage salvor/conductor/server salvor/conductor/node salvor/store salvor/store/storetest salvor/host salvor/api/ironic salvor/compute/service salvor/job
# Both list the packages whose paths a grep lets through: calling-of those of CALLING, racing-of all others.
calling-of = $$($(GO) list $(CALLING) | grep $(1))
racing-of = $$({ printf '%s\n' $(LONGEST); $(GO) list ./...; } | awk '!seen[$$0]++' | grep $(1) | grep -vxFf <($(GO) list $(CALLING)))
RACING := -vet=off $(RACE) -tags otlp -p $(AT_ONCE) -count 1 -timeout 20m
PLAIN := -vet=off -p $(AT_ONCE) -count 1 -timeout 20m

# SWEEPS are the tests of package conductor that test-sweeps runs whole, without the race detector. make soak has them under it.
SWEEPS := '^Test(Sweep|ReadsOf)'

test-unit: test-racing test-calling ## unit and property tests, under the race detector where goroutines share memory

test-racing: build
	$(RUN) -name unit -- $(RACING) -skip $(SWEEPS) -- $(call racing-of,-vE '$(STORIES)')

test-calling: build
	$(RUN) -name unit-calling -- $(PLAIN) -- $(call calling-of,-vE '$(STORIES)')
	$(GO) test -vet=off -count 1 -run Tag ./cmd/salvor/serve
	$(GO) -C tools test -count 1 ./...

test-sweeps: build ## every crash, repetition and failure of every action, write and read of every operation
	$(RUN) -name sweeps -- $(PLAIN) -parallel 8 -run $(SWEEPS) -- ./conductor/...

test-stories: build ## the stories of test/, under the race detector, with the exporter of traces
	$(ALONE)
	$(AGAIN) -name stories -- $(RACING) -- $(call racing-of,-E '$(STORIES)')
	$(AGAIN) -name stories-calling -- $(PLAIN) -- $(call calling-of,-E '$(STORIES)')

flaky: build ## each test ROUNDS=30 times at low priority with GOMAXPROCS=1, 20 test programs at once; PACKAGES="./job ./host" chooses
	test/flaky.sh

mutants: ## change the program in each way of lab/mutants/mutants.txt, where some test must fail; MUTANTS="-id C07,K05" or "-package host" chooses
	$(GO) run ./lab/mutants $(MUTANTS)

fuzz: ## each fuzz target looks for inputs of its own for FUZZTIME (5s); FUZZ=REGEXP chooses
	test/fuzz.sh

e2e: build ## tests with real machines (QEMU) and namespaces, two at a time; E2E=REGEXP chooses
	$(ALONE)
	test/e2e.sh

# Each boot method once (the demos have virtual media, UEFI HTTP and iPXE), one server rescued, one evacuation, one repair, the Debian package.
FIRST_TIER := TestDemoUEFIMedia|TestDemoUEFI|TestDemoIPMI|TestDemoServer|TestDemoEvacuate|TestDemoRepair|TestPackages
e2e-first: build ## the first tier of e2e, which CI runs
	E2E='^($(FIRST_TIER))$$' E2E_PAIRS=1 test/e2e.sh

interop: build ## the tests of tempest, ironicclient and openstacksdk against salvor under keystone; SUITE=NAME, ONLY=WORDS choose
	test/interop.sh

openstack: ## Debian's OpenStack with two nova-computes, one on Debian's Ironic and one on salvor: the same steps of a user of Nova on both, compared
	@test/install.sh openstack demo
	$(GO) test -tags openstack -count 1 -timeout 60m -v -run TestNova ./test/openstack

causes: build ## put known faults on the disks of installed systems, examine them, and write docs/causes.md; hours; it goes on where it was stopped. ONLY=REGEXP chooses
	@test/install.sh causes
	SALVOR_CAUSES_ONLY='$(ONLY)' nice $(GO) test -tags causes -count 1 -timeout 0 -parallel 2 -v -run TestCauses ./lab/causes

repair-rounds: build ## repair a real machine ROUNDS=10 times, while the control plane is killed, the power is cut, or the BMC is silent, and reads of the database are cut; SEED reproduces
	@test/install.sh demo repair-rounds
	test/repair-rounds.sh $(or $(ROUNDS),10)

diagnose-times: build ## measure LOOKS=20 diagnoses of a real machine with a boot, and as many in a rescue under way
	@test/install.sh demo
	test/diagnose-times.sh $(or $(LOOKS),20)

odd: ## change guests between the actions of operations as other tools and people do: in memory, and with root on a real libvirt; run each verb of Redfish behind every odd BMC; set up network data with changed lines, in namespaces and in QEMU; diagnose installed systems with one changed line or file (hours; goes on where it was stopped)
	@test/install.sh unit demo demo-vm odd
	SALVOR_SWEEP=whole $(GO) test -count 1 -timeout 30m -v -run TestOddNetworkData ./agent/network
	SALVOR_SWEEP=whole $(GO) test -count 1 -run 'OfOthers|ByOthers|FormerRelease|AnotherLibvirt|LastRun|StateIsCopied' ./hypervisor/libvirt ./conductor/server ./host
	SALVOR_SWEEP=whole $(GO) test -count 1 -timeout 2h -run 'TestOddBMCs|TestOddPairsEverywhere|TestOddestBMCs|TestOddTrees' ./test/oddbmc
	nice -n 5 $(GO) test -tags causes -count 1 -timeout 0 -v -run 'TestOddSystems|TestBlindFaults' ./test/oddsystem
	SALVOR_SWEEP=whole E2E='^(TestRealDaemon|TestToolsOfOthers|TestGuest)$$' test/e2e.sh

states: ## write docs/states.md again
	$(GO) test ./metal -run States -count 1 -update

api: ## write docs/api/openapi.json and docs/api/diagnosis.json again
	$(GO) test ./api/ironic -run TestReference -count 1 -update
	$(GO) test ./test/reportschema -run TestSchemaIsCurrent -count 1 -update

bench: build ## measure the built salvor: gets, lists, creations, heartbeats, rescue loops, memory, a region of 2,000 hosts, 500 servers of a dead one, the power of 1,000 machines, and the decoding of a BMC's answer; BENCH="--versus URL" compares
	$(GO) run ./lab/bench $(BENCH)
	$(GO) test -run '^$$' -bench 'Region|Renewals|Resumed|1000$$|Cyclades|Evacuate|Decode' -benchtime 3s ./test/fleet ./api/host ./api/nova ./api/cyclades ./test/outage ./driver/redfish ./wire/loose

foreign: ## run the verbs of a rescue against each recorded Redfish tree below TREES=DIR, and print what each BMC is told
	SALVOR_TREES=$(abspath $(TREES)) $(GO) test -v -count 1 -run TestTrees ./driver/redfish

fleet: build ## the figure: one process with a simulated fleet of NODES=100000, each heartbeating every 100 s and power-synced every 120 s; FLEET="--as 100000" has a smaller one do that as often as so many
	$(GO) run ./lab/bench --fleet $(or $(NODES),100000) $(FLEET)

overload: build ## the figure: OVERLOAD=10000 rescues asked by 8 connections and by 500 in one run, with another client and heartbeats beside
	$(GO) run ./lab/bench --overload $(or $(OVERLOAD),10000)

strangers: build ## the figure: each listener in turn under 20,000 idle connections, 4,000 slow bodies, 600 slow readers, 90 MB of refused requests, and 2,000 TLS handshakes a second; SALVOR_SCALE=0.1 makes it smaller
	SALVOR_SOAK=1 $(GO) test -timeout 30m -v -run 'TestStrangers|TestHandshakes' -count 1 ./test/stress

lying-agents: build ## the figure: 1 agent and then 20 at once answer each question for their commands with 24 MiB of empty lists, LENGTH=1m each; memory, and the reads of others
	SALVOR_SOAK=1 SALVOR_LENGTH=$(or $(LENGTH),1m) $(GO) test -timeout 60m -v -run TestLyingAgents -count 1 ./test/stress

chaos: build ## the figure: three control planes on PostgreSQL, 500 nodes at work, one kill -9 every 5 s for 2 minutes; SALVOR_SEED reproduces
	SALVOR_SOAK=1 $(GO) test -timeout 30m -v -run TestChaos -count 1 ./test/stress

upgrade: build ## rescues that a former release began end under this one, and what this one began outlives a return to the former; FORMER=COMMIT chooses it
	test/upgrade.sh $(or $(FORMER),53753be)

soak: build ## the long rounds: unit tests COUNT=20 times under the race detector, every way of booting with real machines, a day behind odd BMCs, mutants
	CGO_ENABLED=1 $(GO) test $(RACE) -timeout 60m -count $(or $(COUNT),20) ./...
	SALVOR_SOAK=1 $(GO) test -timeout 3h -v -run 'Rounds|Lies' -count 1 ./test/outage
	SALVOR_SOAK=1 $(GO) test -timeout 3h -v -count 1 ./test/stress
	SALVOR_SOAK=1 $(GO) test -timeout 3h -count 1 ./conductor/...
	SALVOR_SOAK=1 $(GO) test -timeout 1h -v -count 1 -run TestSizeOfARelease ./test/restored
	SALVOR_SOAK=1 $(GO) test -timeout 1h -count 1 -run 'Remedy|Button' ./cmd/salvor
	SALVOR_SOAK=1 $(GO) test -timeout 1h -v -count 1 -run TestEveryPlaceIsNeeded ./test/recipes
	SALVOR_SOAK=1 $(GO) test -timeout 25h -v -count 1 -run ForLong ./test/oddbmc
	FUZZTIME=10m test/fuzz.sh
	SALVOR_SOAK=1 test/e2e.sh
	$(GO) run ./lab/mutants

try: build ## run salvor with simulated machines, servers, faults and a diagnosis, without root or other packages, until Ctrl-C
	@$(BIN)/salvor-lab try

# What is installed and what is compiled do not wait for each other.
demo: ## diagnose, repair and prove a real machine whose Debian does not boot; DEMO=forgotten, ipmi or uefi rescues one from start to end
	@test/install.sh demo & installer=$$!; $(MAKE) --no-print-directory build; wait $$installer
	@test/demo.sh

demo-packages:
	@test/install.sh demo demo-vm

demo-vm: demo-packages build ## rescue a server on one of two libvirt hosts from start to end; DEMO=uefi by the other firmware
	test/demo-vm.sh

demo-evacuate: demo-packages build ## cut a VM host off while its server runs; fence it, move the server, take the host back
	test/demo-evacuate.sh

tools: ## build the programs that lint the sources
	$(STATICCHECK) -version

clean: ## remove what was built
	rm -rf bin build

.NOTPARALLEL:
.PHONY: help build release release-check check test ci prove times packages prove-packages demo-packages lint fmt fmt-check markers vet staticcheck tidy-check test-racing test-calling test-sweeps test-stories mutants fuzz e2e e2e-first interop openstack foreign flaky causes repair-rounds diagnose-times states api bench fleet overload strangers lying-agents odd chaos upgrade soak demo demo-vm demo-evacuate tools clean
