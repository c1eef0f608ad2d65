package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// write writes the overlay, and records the lines that do not compile. skip are lines of files that get no
// points.
func (s *session) write(l *loaded, skip map[string]map[int]bool) error {
	s.mutants, s.broken = nil, nil
	next := 1
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	module, _, _ := strings.Cut(s.packages[0].path, strings.TrimPrefix(s.packages[0].dir, root))
	if s.packages[0].dir == root {
		module = s.packages[0].path
	}
	const dir = "internal/mutants"
	replace := make(map[string]string)
	put := func(name string, content []byte) error {
		to := filepath.Join(s.scratch, fmt.Sprintf("%d.go", len(replace)))
		replace[name] = to
		return os.WriteFile(to, content, 0o600)
	}
	if err := put(filepath.Join(root, dir, "mutants.go"), mutantsSource); err != nil {
		return err
	}
	runtime, err := l.checkMutants(module + "/" + dir)
	if err != nil {
		return err
	}
	for _, p := range s.packages {
		files := make(map[string][]byte)
		for _, f := range p.files {
			if files[f.name] = f.src; f.isGenerated() {
				continue
			}
			x := &instrumenter{set: l.set, pkg: p, file: f, skip: skip[f.name], next: next}
			files[f.name] = x.instrument(runtime.Path())
			if err := put(f.name, files[f.name]); err != nil {
				return err
			}
			next = x.next
			s.mutants = append(s.mutants, x.mutants...)
		}
		s.broken = append(s.broken, l.errors(p.path, runtime, files)...)
	}
	s.number()
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	s.overlay = filepath.Join(s.scratch, "overlay.json")
	return os.WriteFile(s.overlay, text, 0o600)
}

// number distinguishes the mutants of a function that have the same text.
func (s *session) number() {
	times := make(map[string]int)
	for _, m := range s.mutants {
		key := m.key()
		if times[key]++; times[key] > 1 {
			m.what += fmt.Sprintf(" (%d)", times[key])
		}
	}
}

// share makes the test binaries that test all packages.
func (s *session) share() error {
	add := func(module, pattern, name string, only string) error {
		dir, err := filepath.Abs(filepath.Join(module, pattern))
		if err != nil {
			return err
		}
		k := &killer{name: name, dir: dir, file: filepath.Join(s.scratch, fmt.Sprintf("shared%d.test", len(s.shared)))}
		if only != "" {
			k.args = []string{"-cases", strconv.Itoa(s.cases)}
		}
		if err := build(module, pattern, s.overlay, "", k.file); err != nil {
			return err
		}
		if err := k.explore(s.scratch, s.workers, only); err != nil {
			return err
		}
		s.shared = append(s.shared, k)
		return nil
	}
	for _, pattern := range strings.FieldsFunc(s.with, func(r rune) bool { return r == ',' }) {
		if err := add(".", pattern, pattern, ""); err != nil {
			return err
		}
	}
	if s.oracle == "" {
		return nil
	}
	return add("e2e", "./oracle", "the oracle", s.oracle)
}

// chosen are the mutants of a package that are run.
func (s *session) chosen(p *pkg) []*mutant {
	var all []*mutant
	for _, m := range s.mutants {
		if m.pkg == p && (s.again == nil || s.again[m.key()]) && (s.only == "" || regexp.MustCompile(s.only).MatchString(m.key())) {
			all = append(all, m)
		}
	}
	if s.sample > 0 && s.sample < len(all) {
		r := rand.New(rand.NewPCG(s.seed, 0))
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:s.sample]
		slices.SortFunc(all, func(a, b *mutant) int { return a.id - b.id })
	}
	return all
}

// test runs the mutants of a package.
func (s *session) test(p *pkg) (t tally, err error) {
	all := s.chosen(p)
	own := &killer{name: p.path, dir: p.dir, file: filepath.Join(s.scratch, "own.test"), quick: s.quick}
	poisoned := &killer{name: p.path + " with poison", dir: p.dir, file: filepath.Join(s.scratch, "poisoned.test")}
	pattern := "./" + short(p.dir)
	if hasTests(p.dir) {
		if err := build(".", pattern, s.overlay, "", own.file); err != nil {
			return t, err
		}
		if err := own.explore(s.scratch, s.workers, ""); err != nil {
			return t, err
		}
	}
	t.all = len(all)
	killed := make(map[*mutant]string)
	reached := make(map[*mutant]bool)
	pass := func(k *killer) {
		var left []*mutant
		for _, m := range all {
			if killed[m] == "" {
				left = append(left, m)
			}
		}
		var mu sync.Mutex
		each(s.workers, left, func(m *mutant) {
			dead, late, reaches := k.kills(m)
			mu.Lock()
			defer mu.Unlock()
			reached[m] = reached[m] || reaches
			if dead {
				killed[m] = k.name
			}
			if dead && late {
				t.late++
			}
			switch {
			case s.verbose && late:
				fmt.Printf("%s:%d: killed by %s, which did not end in time: %s\n", m.file, m.line, k.name, m.what)
			case s.verbose && dead:
				fmt.Printf("%s:%d: killed by %s: %s\n", m.file, m.line, k.name, m.what)
			case s.verbose:
				fmt.Printf("%s:%d: not killed by %s: %s\n", m.file, m.line, k.name, m.key())
			}
		})
	}
	pass(own)
	if s.whole && len(killed) < len(all) && len(own.tests) > 0 {
		long := &killer{name: p.path + " without -short", dir: p.dir, file: own.file, whole: true}
		if err := long.explore(s.scratch, s.workers, ""); err != nil {
			return t, err
		}
		pass(long)
	}
	for _, k := range s.shared {
		pass(k)
	}
	if s.poison && len(killed) < len(all) && len(own.tests) > 0 {
		if err := build(".", pattern, s.overlay, "poison", poisoned.file); err != nil {
			return t, err
		}
		poisoned.tests = own.tests
		pass(poisoned)
	}
	s.report(p, all, killed, reached, &t)
	return t, nil
}

func hasTests(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return err == nil && len(names) > 0
}

// A tally counts mutants.
type tally struct{ all, killed, late, explained, unreached, survived int }

func (t *tally) add(o tally) {
	t.all += o.all
	t.killed += o.killed
	t.late += o.late
	t.explained += o.explained
	t.unreached += o.unreached
	t.survived += o.survived
}

// String has the share of those that are killed among those that make a difference. Where
// the machine is busy, a test may be late for another reason than the mutant.
func (t *tally) String() string {
	share := 100.0
	if n := t.all - t.explained; n > 0 {
		share = 100 * float64(t.killed) / float64(n)
	}
	return fmt.Sprintf("%.1f %% killed: %d mutants, %d killed (%d of them because a test was late), %d explained, %d survived, %d of them not reached",
		share, t.all, t.killed, t.late, t.explained, t.survived, t.unreached)
}

func (s *session) report(p *pkg, all []*mutant, killed map[*mutant]string, reached map[*mutant]bool, t *tally) {
	by := make(map[string]int)
	stale := make(map[string]bool)
	for _, m := range all {
		_, explained := s.explain[m.key()]
		switch {
		case killed[m] != "":
			t.killed++
			by[killed[m]]++
			stale[m.key()] = explained
		case explained:
			t.explained++
		case !reached[m]:
			t.survived++
			t.unreached++
			fmt.Printf("%s:%d: not reached: %s\n", m.file, m.line, m.key())
		default:
			t.survived++
			fmt.Printf("%s:%d: survived: %s\n", m.file, m.line, m.key())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(stale)) {
		if stale[key] {
			fmt.Printf("killed, but explained: %s\n", key)
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d by %s", by[name], strings.TrimPrefix(name, p.path)))
	}
	fmt.Printf("%s: %s (%s)\n", p.path, t, strings.Join(parts, ", "))
}

// readSurvivors reads the keys of mutants from the output of a run.
func readSurvivors(name string) (map[string]bool, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	keys := make(map[string]bool)
	for _, found := range regexp.MustCompile(`(?m)^\S+:\d+: (?:survived|not reached): (.*)$`).FindAllSubmatch(content, -1) {
		keys[string(found[1])] = true
	}
	return keys, nil
}

// readExplained reads the explained mutants, which make no difference: a line with the key of each, and then
// indented lines with the reason.
func readExplained(name string) (map[string]string, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	explained := make(map[string]string)
	var keys []string // the mutant of the reason
	reasoned := true
	for i, line := range strings.Split(string(content), "\n") {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case strings.HasPrefix(line, "\t"):
			if len(keys) == 0 {
				return nil, fmt.Errorf("%s:%d: got a reason, want a mutant before it", name, i+1)
			}
			reasoned = true
			for _, key := range keys {
				explained[key] = strings.TrimSpace(explained[key] + " " + text)
			}
		default:
			if reasoned {
				keys, reasoned = nil, false
			}
			keys = append(keys, line)
		}
	}
	if !reasoned {
		return nil, fmt.Errorf("%s: got no reason for %s", name, keys)
	}
	return explained, nil
}
