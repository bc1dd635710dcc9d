package sandbox

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processPoll is the time between two counts of a program's processes.
const processPoll = 20 * time.Millisecond

// watchProcesses calls end once the processes and threads of this PID namespace are more than maxProcesses. RLIMIT_NPROC does not bound root, and a
// control group, which refuses the process that is one too many, is not there in each ramdisk. Between two counts a program can start more than
// maxProcesses; all of them end with the first process of the namespace.
func watchProcesses(end func()) {
	for range time.Tick(processPoll) {
		if countThreads("/proc") > maxProcesses {
			end()
			return
		}
	}
}

// countThreads counts the threads of all processes that a proc file system shows, but for those of the first process.
func countThreads(proc string) (n int) {
	folder, err := os.Open(proc)
	if err != nil {
		return 0
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1) // a process that ends meanwhile costs itself only
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 {
			continue
		}
		var task unix.Stat_t
		if unix.Fstatat(int(folder.Fd()), name+"/task", &task, 0) == nil {
			n += max(1, int(task.Nlink)-2) // a folder has two links besides one for each thread
		}
	}
	return n
}
