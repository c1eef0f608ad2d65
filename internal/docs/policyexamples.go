package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A policyCase is a case of the test suite of a policy.
type policyCase struct {
	Name      string
	Object    map[string]any
	OldObject map[string]any
	User      any
	Expect    struct{ Decision string }
	source    string // the object as it is written in the suite
}

// examples shows two cases of the policy's test suite, and how they are reviewed: the first one that the policy denies or changes, and
// the most similar one that it allows or leaves as it is. It writes their objects into the folder.
func (p *shippedPolicy) examples(dir string) (string, error) {
	suite := strings.TrimSuffix(p.file, ".yaml") + ".test.yaml"
	text, err := Read(suite)
	if err != nil {
		return "", err
	}
	namespace, cases, err := readCases(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", suite, err)
	}
	first, second, verdict := "denied.yaml", "allowed.yaml", ": denied by "
	if p.Kind == "MutatingAdmissionPolicy" {
		first, second, verdict = "changed.yaml", "unchanged.yaml", ", patched by "
	}
	reached, other := examplesOf(cases)
	if other == nil {
		return "", fmt.Errorf("%s: got no two cases of one kind, want one that is denied or patched, and one that is allowed", suite)
	}
	for name, c := range map[string]*policyCase{first: reached, second: other} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c.source), 0o600); err != nil {
			return "", err
		}
	}
	options := "--policies=" + p.file + " --bind-policies"
	if namespace != "" {
		options = "-n " + namespace + " " + options
	}
	stdout, stderr, _ := Run(append([]string{"review", filepath.Join(dir, first), filepath.Join(dir, second)}, strings.Fields(options)...))
	output := strings.ReplaceAll(stdout+stderr, dir+string(filepath.Separator), "")
	if !strings.Contains(output, verdict) || !strings.Contains(output, second+":1: ") {
		return "", fmt.Errorf("%s: got %q, want %s%s%s", suite, output, first, verdict, p.Kind)
	}
	show := func(name string, c *policyCase) string {
		return fmt.Sprintf("`%s`, the case \"%s\":\n\n```yaml\n%s```\n\n", name, c.Name, c.source)
	}
	return fmt.Sprintf("\n## Try it\n\nThese are two of the %d cases of [its tests](../../%s).\n\n%s%s", len(cases), suite,
		show(first, reached), show(second, other)) +
		fmt.Sprintf("```console\n$ bin/fastadmit review %s %s %s\n%s```\n", first, second, options, output), nil
}

// readCases reads the namespace and the cases of a test suite.
func readCases(text string) (namespace string, cases []*policyCase, err error) {
	var suite struct {
		Namespace string
		Cases     []*policyCase
	}
	if err := yaml.Unmarshal([]byte(text), &suite); err != nil {
		return "", nil, err
	}
	written := strings.Split(text, "\n- name: ")[1:]
	if len(written) != len(suite.Cases) {
		return "", nil, fmt.Errorf("got %d cases, of which %d begin with the name", len(suite.Cases), len(written))
	}
	for i, c := range suite.Cases {
		_, object, _ := strings.Cut(written[i], "\n  object:\n")
		for line := range strings.Lines(object) {
			if !strings.HasPrefix(line, "    ") {
				break
			}
			c.source += line[len("    "):]
		}
	}
	return suite.Namespace, suite.Cases, nil
}

// examplesOf returns the first case that is denied or patched, and the most similar one that is allowed: of the same kind, it lacks the
// fewest of its fields, changes the fewest of their values, and adds the fewest others. It leaves out what a reader cannot try with a
// manifest alone: updates, users, and whole requests.
func examplesOf(cases []*policyCase) (reached, other *policyCase) {
	isAlone := func(c *policyCase) bool {
		return c.OldObject == nil && c.User == nil && c.source != "" && c.Object["kind"] != "AdmissionReview"
	}
	at := slices.IndexFunc(cases, func(c *policyCase) bool { return isAlone(c) && c.Expect.Decision != "allowed" })
	if at < 0 {
		return nil, nil
	}
	reached = cases[at]
	paths, values := fieldsOf(reached.Object)
	var least []int
	for _, c := range cases {
		if !isAlone(c) || c.Expect.Decision != "allowed" || c.Object["kind"] != reached.Object["kind"] {
			continue
		}
		theirPaths, theirValues := fieldsOf(c.Object)
		differ := []int{missing(paths, theirPaths), missing(values, theirValues), missing(theirValues, values)}
		if other == nil || slices.Compare(differ, least) < 0 {
			other, least = c, differ
		}
	}
	return reached, other
}

// missing counts the members of a set that another one does not have.
func missing(of, in map[string]bool) (count int) {
	for member := range of {
		if !in[member] {
			count++
		}
	}
	return count
}

// fieldsOf returns the paths of all fields that have no fields themselves, and the paths with their values. The elements of a list have
// one path.
func fieldsOf(object any) (paths, values map[string]bool) {
	paths, values = make(map[string]bool), make(map[string]bool)
	var add func(path string, value any)
	add = func(path string, value any) {
		members, _ := value.(map[string]any)
		elements, _ := value.([]any)
		for name, member := range members {
			add(path+"."+name, member)
		}
		for _, element := range elements {
			add(path+"[]", element)
		}
		if len(members)+len(elements) == 0 {
			paths[path] = true
			values[fmt.Sprint(path, "=", value)] = true
		}
	}
	add("", object)
	return paths, values
}
