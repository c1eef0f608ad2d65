package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/offline/suite"
	"github.com/fastadmit/fastadmit/internal/printable"
)

type testOptions struct {
	*options
	trust    selection // for its flags
	run      string
	output   string
	failFast bool
	verbose  bool
	convert  bool
	skip     bool
	strict   bool
	version  string                 // that is emulated, empty for that of the configuration
	notes    policies.AllFieldNotes // of all cases
}

const testVersionUsage = "minor release of Kubernetes to behave as, as 1.34; if empty, that of the configuration of a suite, or the newest without one"

func newTestCommand(o *options) *cobra.Command {
	t := &testOptions{options: o}
	cmd := &cobra.Command{
		Use:   "test [FILE|FOLDER]...",
		Short: "Run test suites of policies and plugin configurations",
		Long: `Runs test suites: the given files, and the files in the given folders that are named fastadmit-test.yaml
or end with .test.yaml. It also runs the tests of Kyverno (kyverno-test.yaml) and Gatekeeper (suite.yaml)
whose policies are written in CEL. Without arguments, it searches the current folder. A suite names policies and
plugin configurations, and has cases: an object, and the expected result. The files that it names must be
in the given folder, or for a given file in its folder, except with --allow-files-outside. It needs no
cluster, and no plugin calls an address or runs a command, except with --allow-plugin-calls.

Prints the failed cases with their differences, and a summary. Notes on standard error, and in -o junit, say
which objects have fields that their kind does not have, and which policies are evaluated in no case.

With --convert-tests, it runs nothing, and prints the tests of Kyverno and Gatekeeper as suites of fastadmit: a
YAML document for each, which names its source and belongs into the same folder. What such a suite cannot say is
an error with file, line and field. Then it exits with 0 or 1.

Exits with 0 if all cases pass, 1 if one fails, 2 if a suite or a case could not be run, if the
command is wrong, or with --strict if there is a note.`,
		Example: "  fastadmit test policies/\n" +
			"  fastadmit test policies/ --run=no-latest -v\n" +
			"  fastadmit test -o junit > report.xml\n" +
			"  fastadmit test --convert-tests latest/kyverno-test.yaml > latest/fastadmit-test.yaml",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return manifestExtensions(), cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			return broken(t.test(cmd, paths))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&t.run, "run", "", "run only the cases whose suite and name, as in suite/case, match this regular expression")
	flags.StringVarP(&t.output, "output", "o", "text", "format: "+strings.Join(suite.Formats(), ", "))
	flags.BoolVar(&t.failFast, "fail-fast", false, "stop after the first case that fails")
	flags.BoolVarP(&t.verbose, "verbose", "v", false, "with -o text, also print the cases that pass")
	flags.BoolVar(&t.strict, "strict", false, "exit with 2 if all cases pass and there is a note: an object has a field that its kind does not have, "+
		"a policy is evaluated in no case, or a policy names what does not exist")
	flags.StringVar(&t.version, "emulated-version", "", testVersionUsage)
	flags.BoolVar(&t.convert, "convert-tests", false, "print the tests of Kyverno and Gatekeeper as suites of fastadmit, and run nothing")
	flags.BoolVar(&t.skip, "skip-untranslatable", false, "with --convert-tests, print the others if a case has no translation, and exit with 0")
	t.trust.addTrustFlags(flags)
	for _, other := range []string{"run", "output", "fail-fast", "verbose", "emulated-version", "allow-plugin-calls", "strict"} {
		cmd.MarkFlagsMutuallyExclusive("convert-tests", other)
	}
	completeValues(cmd, "output", suite.Formats()...)
	return cmd
}

func (t *testOptions) test(cmd *cobra.Command, paths []string) error {
	if !slices.Contains(suite.Formats(), t.output) {
		return fmt.Errorf("--output: got %q, want one of %s", t.output, strings.Join(suite.Formats(), ", "))
	}
	runner := suite.Runner{Review: t.review, FailFast: t.failFast}
	if t.run != "" {
		var err error
		if runner.Select, err = regexp.Compile(t.run); err != nil {
			return fmt.Errorf("--run: %w", err)
		}
	}
	if t.version != "" {
		if _, _, err := admission.ParseVersion(t.version); err != nil {
			return fmt.Errorf("--emulated-version: %w", err)
		}
	}
	if t.skip && !t.convert {
		return errors.New("--skip-untranslatable needs --convert-tests")
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := suite.Find(paths, t.trust.allowOutside)
	if err != nil {
		return failed(err)
	}
	if t.convert {
		return t.convertTests(cmd, files)
	}
	outcomes, notes := runner.Run(cmd.Context(), files)
	if len(outcomes) == 0 {
		return failed(fmt.Errorf("there is nothing to run: no case matches --run=%s", t.run))
	}
	noted := t.printNotes(cmd.ErrOrStderr(), notes)
	out := bufio.NewWriter(cmd.OutOrStdout())
	err = errors.Join(suite.Write(out, t.output, "fastadmit test", t.verbose, outcomes, notes), out.Flush())
	switch summary := suite.Count(outcomes); {
	case err != nil:
		return failed(err)
	case summary.Broken > 0:
		return &exit{exitBroken, nil}
	case summary.Failed > 0:
		return &exit{exitFailed, nil}
	case t.strict && noted > 0:
		return &exit{exitBroken, fmt.Errorf("--strict: all cases pass, with %s", report.Counted(noted, "note"))}
	}
	return nil
}

// printNotes prints the notes on policies and on suites, each once, and returns their number.
func (t *testOptions) printNotes(w io.Writer, notes []suite.Note) int {
	said := make(map[string]bool)
	say := func(text string) {
		if !said[text] { // suites may have the same objects
			said[text] = true
			fmt.Fprintf(w, "fastadmit: %s\n", printable.Plain(text))
		}
	}
	for _, note := range t.notes.Sorted() {
		say(note.String())
	}
	for _, note := range notes {
		say(note.Text)
	}
	return len(said)
}

// convertTests prints the suites that say what tests of other engines do.
func (t *testOptions) convertTests(cmd *cobra.Command, given []suite.File) error {
	var documents []string
	var errs []error
	found := false
	for _, file := range given {
		text, isForeign, faults := suite.Convert(file)
		found, errs = found || isForeign, append(errs, faults...)
		if text != nil {
			documents = append(documents, printable.Plain(string(text)))
		}
	}
	switch {
	case !found:
		return &exit{exitFailed, errors.New("there is nothing to convert: no file is a test of Kyverno or Gatekeeper")}
	case len(errs) > 0 && !t.skip:
		return &exit{exitFailed, errors.Join(errs...)}
	}
	for _, err := range errs {
		fmt.Fprintf(cmd.ErrOrStderr(), "fastadmit: %s\n", printable.Plain(err.Error()))
	}
	_, err := io.WriteString(cmd.OutOrStdout(), strings.Join(documents, "---\n"))
	return failed(err)
}

// review reviews the objects of a case with plugins and a cluster of its own.
func (t *testOptions) review(ctx context.Context, s *suite.Setup) (results []*report.Result, notes []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own := *t.options // commands change it
	r := &reviewOptions{
		selection: selection{
			options: &own, enable: s.EnableAdmissionPlugins, admissionFile: s.AdmissionFile, configFile: s.ConfigFile,
			cluster: knownCluster{kinds: own.kinds()}, untrusted: true, allowCalls: t.trust.allowCalls,
		},
		namespace: s.Namespace, operation: string(s.Operation), user: s.User, noPods: !s.WorkloadPods, bindPolicies: s.BindPolicies,
	}
	r.emulated.flag = t.version
	if !t.trust.allowCalls { // with calls, a configuration can read any file
		r.tree = s.Tree
	}
	o, err := r.prepared()
	if err != nil {
		return nil, nil, err
	}
	o.KeepObjects, o.KeepResponse, o.Old, o.NoDefaults, o.Explain = true, true, s.Old, s.NoDefaults, s.Explain
	r.policies.Allow(s.Functions, s.Reads)
	if faults := policyFaults(s.Policies); faults != nil {
		return nil, nil, errors.Join(faults...)
	}
	r.policies.BindsWith("bindPolicies: Deny in the suite")
	others, errs := r.usePolicies(s.Policies, s.State, s.Objects)
	if errs != nil {
		return nil, nil, errors.Join(errs...)
	}
	o.State = slices.Concat(others, s.State)
	for i := range s.State {
		if policies.IsPolicy(s.State[i].GroupVersionKind()) {
			return nil, nil, fmt.Errorf("%s: a policy in the cluster is not evaluated; name it among the policies", s.State[i].Source)
		}
	}
	if err := r.prepare(ctx, o); err != nil {
		if errors.Is(err, errNoPlugin) && !s.GuessKinds {
			err = suite.ErrNoPlugin
		}
		return nil, nil, err
	}
	if !s.GuessKinds { // the policies in tests of other engines are translations
		t.notes.Add(ctx, &r.policies)
	} else {
		guessKinds(o.Resources, s.Objects)
	}
	err = review.Run(ctx, *o, s.Objects, func(result *report.Result) error {
		results = append(results, result)
		return nil
	})
	return results, r.policyNotes(o.Chain), err
}

// guessKinds adds the kinds of objects that a table does not have.
func guessKinds(table *discovery.Table, items []manifest.Item) {
	for i := range items {
		kind := items[i].GroupVersionKind()
		if _, err := table.Find(kind); err != nil {
			guess, _ := meta.UnsafeGuessKindToResource(kind)
			table.Add(kind.Kind, discovery.Resource{GroupVersionResource: guess, Namespaced: true})
		}
	}
}
