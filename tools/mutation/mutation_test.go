package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inModule makes a module of the package in testdata, and changes to its folder.
func inModule(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "go.mod"), "module example.com/sample\n\ngo 1.26\n")
	for _, name := range []string{"count.go", "count_test.go"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, "count", name), string(content))
	}
	put(t, filepath.Join(dir, "explained.txt"), "# none\n")
	t.Chdir(dir)
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// printed runs mutants of the packages and returns the output.
func printed(t *testing.T, o options, patterns ...string) (output string, survivors int, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		all <- string(text)
	}()
	stdout := os.Stdout
	os.Stdout = w
	o.explained, o.workers = "explained.txt", 2
	survivors, err = run(&o, patterns)
	os.Stdout = stdout
	_ = w.Close()
	return <-all, survivors, err
}

// survived are the mutants of the package in testdata that its tests do not kill, in the
// order of the output.
const survived = `count/count.go:13: survived: count/count.go: Positive: n > 0: >= for >
count/count.go:18: survived: count/count.go: Sum: n < 0: <= for <
count/count.go:18: survived: count/count.go: Sum: 0: one more
count/count.go:26: survived: count/count.go: ignored: []int{-1, -2}: without -2
count/count.go:26: survived: count/count.go: ignored: -2: one more
count/count.go:34: survived: count/count.go: Keep: log(): left out
count/count.go:33: survived: count/count.go: Keep: strings.Clone(text): no clone
count/count.go:40: not reached: count/count.go: Unreached: Unreached: returns at once
count/count.go:40: not reached: count/count.go: Unreached: 7: one more
`

func TestList(t *testing.T) {
	inModule(t)
	got, survivors, err := printed(t, options{list: true}, "./...")
	want := strings.ReplaceAll(`13: Positive: n > 0: always true
13: Positive: n > 0: always false
13: Positive: n > 0: >= for >
13: Positive: 0: one more
16: Sum: Sum: returns at once
21: Sum: sum += n: left out
18: Sum: n < 0: always true
18: Sum: n < 0: always false
18: Sum: n < 0: <= for <
18: Sum: 0: one more
18: Sum: ignored(n): always true
18: Sum: ignored(n): always false
26: ignored: slices.Contains([]int{-1, -2}, n): always true
26: ignored: slices.Contains([]int{-1, -2}, n): always false
26: ignored: []int{-1, -2}: without -1
26: ignored: []int{-1, -2}: without -2
26: ignored: -1: one more
26: ignored: -2: one more
32: Keep: Keep: returns at once
33: Keep: Kept = strings.Clone(text): left out
34: Keep: log(): left out
33: Keep: strings.Clone(text): no clone
40: Unreached: Unreached: returns at once
40: Unreached: 7: one more
`, ": ", ": count/count.go: ")
	var lines []string
	for line := range strings.Lines(got) {
		before, after, _ := strings.Cut(strings.TrimPrefix(line, "count/count.go:"), ": count/count.go: ")
		lines = append(lines, before+": "+after)
	}
	if want = strings.ReplaceAll(want, ": count/count.go: ", ": "); strings.Join(lines, "") != want || survivors != 0 || err != nil {
		t.Errorf("got %d, %v and\n%s\nwant\n%s", survivors, err, strings.Join(lines, ""), want)
	}
}

func TestRun(t *testing.T) {
	inModule(t)
	const tallied = "62.5 % killed: 24 mutants, 15 killed (0 of them because a test was late), 0 explained, 9 survived, " +
		"2 of them not reached"
	want := "seed 1\n" + survived + "example.com/sample/count: " + tallied + " (15 by )\ntotal: " + tallied + "\n"
	got, survivors, err := printed(t, options{seed: 1}, "./count")
	if got != want || survivors != 9 || err != nil {
		t.Errorf("got %d survivors, %v and\n%s\nwant 9 and\n%s", survivors, err, got, want)
	}
	// A run of the survivors, some of which are explained.
	put(t, "out", got)
	put(t, "explained.txt", "count/count.go: Keep: log(): left out\n"+
		"count/count.go: Keep: strings.Clone(text): no clone\n\tnobody sees it\n"+
		"count/count.go: Positive: 0: one more\n\twrong\n")
	got, survivors, err = printed(t, options{again: "out", seed: 1}, "./count")
	if survivors != 7 || err != nil || !strings.Contains(got, "total: 0.0 % killed: 9 mutants, 0 killed (0 of them because a test was "+
		"late), 2 explained, 7 survived") {
		t.Errorf("again: got %d survivors, %v and\n%s", survivors, err, got)
	}
	// A mutant that is killed although it is explained.
	got, survivors, err = printed(t, options{only: "^count/count.go: Positive: 0: one more$"}, "./count")
	if survivors != 0 || err != nil || !strings.Contains(got, "\nkilled, but explained: count/count.go: Positive: 0: one more\n") {
		t.Errorf("explained: got %d survivors, %v and\n%s", survivors, err, got)
	}
}

// TestSample expects the same mutants for the same seed, and others for another seed.
func TestSample(t *testing.T) {
	inModule(t)
	var all []string
	for _, seed := range []uint64{1, 1, 2} {
		got, _, err := printed(t, options{list: true, sample: 6, seed: seed}, "./count")
		if err != nil || strings.Count(got, "\n") != 6 {
			t.Errorf("got %v and %q, want 6 mutants", err, got)
		}
		all = append(all, got)
	}
	if all[0] != all[1] || all[0] == all[2] {
		t.Errorf("got %q", all)
	}
}

func TestRunErrors(t *testing.T) {
	inModule(t)
	f := func(o options, pattern, want string) {
		t.Helper()
		if _, _, err := printed(t, o, pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", pattern, err, want)
		}
	}
	f(options{}, "./nowhere", "cannot list the packages")
	f(options{again: "nothing"}, "./count", "no such file")
	put(t, "count/more_test.go", "package count\n\nvar _ = unknown\n")
	f(options{}, "./count", "cannot build the tests of ./count")
	put(t, "count/more_test.go", "package count\n")
	put(t, "explained.txt", "a: b\n")
	f(options{}, "./count", `explained.txt: got no reason for [a: b]`)
	put(t, "explained.txt", "\ta reason\n")
	f(options{}, "./count", "explained.txt:1: got a reason, want a mutant before it")
}

func TestReadExplained(t *testing.T) {
	name := filepath.Join(t.TempDir(), "explained.txt")
	put(t, name, "# comment\na\nb\n\tthe reason,\n\tgoes on\n\nc\n\tanother\n")
	got, err := readExplained(name)
	want := map[string]string{"a": "the reason, goes on", "b": "the reason, goes on", "c": "another"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := readExplained(name + "x"); err == nil {
		t.Error("got no error for a file that does not exist")
	}
}

func TestReadSurvivors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	put(t, name, "seed 1\n"+survived+"x.go:1: killed by x: y\ntotal: 1 survived: no\n")
	got, err := readSurvivors(name)
	if keys := slices.Sorted(maps.Keys(got)); err != nil || len(keys) != 9 || keys[0] != "count/count.go: Keep: log(): left out" {
		t.Errorf("got %q, %v", keys, err)
	}
}

// TestReached reads the numbers of points.
func TestReached(t *testing.T) {
	name := filepath.Join(t.TempDir(), "reached")
	if got, err := readReached(name); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v for no file", got, err)
	}
	put(t, name, "\x01\x00\x00\x00\x02\x01\x00\x00\x03")
	if got, err := readReached(name); err != nil || fmt.Sprint(got) != "map[1:true 258:true]" {
		t.Errorf("got %v, %v", got, err)
	}
}
