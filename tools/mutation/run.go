package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// timeoutFactor times the duration with the original code is how long tests may take
	// with a mutant, but at least timeoutMin.
	timeoutFactor = 10
	timeoutMin    = 5 * time.Second

	// dataKiBMax bounds the memory of a run: a mutant may allocate without end.
	dataKiBMax = 3 << 20

	// firstTests is the processor time of the quickest tests of a mutant, which run
	// first. Those that run next may take twice as much, and so on: a process begins
	// in some milliseconds, and runs its tests in the order of the files.
	firstTests = 500 * time.Millisecond
)

// A killer is a test binary, made with the mutants.
type killer struct {
	name  string // of its package, and the tag that it is built with
	file  string
	dir   string // where it runs
	args  []string
	whole bool          // without -short
	quick time.Duration // the processor time that a test may take, 0 for any
	tests []test
}

// A test is one that passes with the original code.
type test struct {
	name    string
	takes   time.Duration
	cpu     time.Duration // processor time, which another load does not change
	reaches map[int]bool  // the points
}

// build makes a test binary in a module.
func build(module, pattern, overlay, tags, out string) error {
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-tags", tags, "-o", out, pattern)
	cmd.Dir = module
	if tags == "" && strings.Contains(pattern, "oracle") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as e2e/run does, which built the other programs
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the tests of %s: %w\n%s", pattern, err, output)
	}
	return nil
}

// run runs tests with a mutant, 0 for none. It reports the processor time that they
// took, and whether they passed.
func (k *killer) run(mutant int, tests []string, timeout time.Duration, env ...string) (output []byte, cpu time.Duration, passed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+timeoutMin)
	defer cancel()
	pattern := "^(" + strings.Join(tests, "|") + ")$"
	if strings.Contains(tests[0], "/") {
		pattern = "^" + strings.ReplaceAll(tests[0], "/", "$/^") + "$"
	}
	limits := "ulimit -d " + strconv.Itoa(dataKiBMax)
	if mutant == 0 && k.quick > 0 { // a test that takes more is left out, so that it need not end
		limits += "; ulimit -t " + strconv.Itoa(int(k.quick/time.Second)+1)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", limits + `; exec "$@"`, "sh", k.file,
		"-test.run", pattern, "-test.short=" + strconv.FormatBool(!k.whole), "-test.failfast", "-test.timeout", timeout.String()}, k.args...)...)
	cmd.Dir = k.dir
	cmd.Env = append(os.Environ(), append(env, "MUTANT="+strconv.Itoa(mutant))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the environment of the tests
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return output, cpu, err == nil
}

// explore runs each test alone, without a mutant, and records the points that it reaches.
// only limits it to tests that -run would run.
func (k *killer) explore(scratch string, workers int, only string) error {
	names, err := k.list(only)
	if err != nil {
		return fmt.Errorf("cannot list the tests of %s: %w", k.name, err)
	}
	var mu sync.Mutex
	each(workers, names, func(name string) {
		file := filepath.Join(scratch, filepath.Base(k.file)+"."+strings.ReplaceAll(name, "/", "."))
		began := time.Now()
		output, cpu, passed := k.run(0, []string{name}, 10*time.Minute, "MUTANTS_REACHED="+file)
		takes := time.Since(began)
		if k.quick > 0 && cpu > k.quick {
			return
		}
		if !passed { // recording causes allocations, which the test may count
			began = time.Now()
			output, cpu, passed = k.run(0, []string{name}, 10*time.Minute)
			takes = time.Since(began)
		}
		reaches, err := readReached(file)
		mu.Lock()
		defer mu.Unlock()
		if !passed || err != nil {
			fmt.Printf("%s: left out %s, which fails without a mutant: %v\n%s\n", k.name, name, err, tail(output))
			return
		}
		k.tests = append(k.tests, test{name, takes, cpu, reaches})
	})
	slices.SortFunc(k.tests, func(a, b test) int { return cmp.Compare(a.cpu, b.cpu) })
	return nil
}

// list returns the names of the tests; with only, those that match, and the subtests in
// place of a test that has some.
func (k *killer) list(only string) (names []string, err error) {
	if only == "" {
		list := exec.Command(k.file, "-test.list", "^(Test|Fuzz|Example)")
		list.Dir = k.dir
		out, err := list.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		return strings.Fields(string(out)), nil
	}
	list := exec.Command(k.file, "-test.v", "-test.short", "-cases", "1", "-test.run", only)
	list.Dir = k.dir
	out, _ := list.CombinedOutput() // tests that fail are left out later
	for _, found := range regexp.MustCompile(`(?m)^=== RUN +(\S+)$`).FindAllStringSubmatch(string(out), -1) {
		name := found[1]
		if parent, _, ok := strings.Cut(name, "/"); ok {
			names = slices.DeleteFunc(names, func(other string) bool { return other == parent })
		}
		if strings.Count(name, "/") <= 1 {
			names = append(names, name)
		}
	}
	return names, nil
}

func readReached(file string) (map[int]bool, error) {
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	reaches := make(map[int]bool)
	for ; len(content) >= 4; content = content[4:] {
		reaches[int(binary.LittleEndian.Uint32(content))] = true
	}
	return reaches, nil
}

// kills reports whether a test fails with the mutant, late if one did not end in time,
// and whether one reaches it. The quickest tests run first.
func (k *killer) kills(m *mutant) (killed, late, reached bool) {
	var names []string
	var takes, cpu time.Duration
	flush := func() bool {
		if len(names) == 0 {
			return false
		}
		output, _, passed := k.run(m.id, names, max(timeoutFactor*takes, timeoutMin))
		names, takes, cpu = nil, 0, 0
		late = bytes.Contains(output, []byte("panic: test timed out"))
		return !passed
	}
	most := firstTests
	for _, t := range k.tests {
		if !t.reaches[m.point] {
			continue
		}
		reached = true
		if len(names) > 0 && (cpu+t.cpu > most || strings.Contains(t.name, "/")) {
			if most *= 2; flush() {
				return true, late, true
			}
		}
		names = append(names, t.name)
		takes += t.takes
		cpu += t.cpu
	}
	killed = flush()
	return killed, late, reached
}

// each calls do for all items, with so many calls at once.
func each[T any](workers int, items []T, do func(T)) {
	next := make(chan T)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for item := range next {
				do(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	group.Wait()
}

func tail(output []byte) []byte {
	const most = 2000
	return bytes.TrimSpace(output[max(len(output)-most, 0):])
}
