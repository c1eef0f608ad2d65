package fastadmit_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/docs"
	"github.com/fastadmit/fastadmit/internal/policy/matchconditions"
)

// A block is a fenced block that a person wrote; generated ones are left out.
type block struct {
	document, language, text string
	notRun                   string // the reason why no test runs it
	message                  string // the file with the message that it shows
}

var (
	writtenBlock = regexp.MustCompile("(?ms)(?:^ *<!-- (?:(?:not run|table|losses): ([^\n]+)|message: ([^ ]+)) -->\n)?" +
		"^( *)```([a-z]*)\n(.*?)^ *```$")
	comparedBlock = regexp.MustCompile(`(?s)<!-- compare: .*?<!-- end -->`)
)

// blocks returns the blocks of all documents, without those of plugins that TestConventionsPluginExamples runs.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	for _, name := range documents(t) {
		text := comparedBlock.ReplaceAllString(docs.WithoutGenerated(read(t, name)), "")
		for _, m := range writtenBlock.FindAllStringSubmatch(text, -1) {
			if m[4] == "sh" && strings.HasPrefix(name, "handlers/") {
				continue
			}
			all = append(all, block{name, m[4], strings.ReplaceAll("\n"+m[5], "\n"+m[3], "\n")[1:], m[1], m[2]})
		}
	}
	return all
}

// followed are the documents whose blocks package e2e/walkthrough runs.
var followed = []string{"docs/operations.md", "docs/podsecuritypolicy.md", "docs/managed-clusters.md", "docs/migration.md"}

// TestConventionsBlocks requires that a test runs each command and output in the documents, or that the block says
// why none does, and that each message occurs in the named file. TestConventionsGenerated runs the generated blocks.
// The blocks of the documents in followed, and equal blocks elsewhere, are run by the e2e test that calls
// walkthrough.Admin with words from the block. Package e2e/documents checks that the commands, flags, values and
// files exist in blocks that are not run.
func TestConventionsBlocks(t *testing.T) {
	calls := walkthroughCalls(t)
	var ci strings.Builder
	for line := range strings.Lines(read(t, ".ci/run")) {
		ci.WriteString(strings.TrimLeft(line, "\t"))
	}
	all := blocks(t)
	var run []string
	for _, b := range all {
		asked := func(words []string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(b.text, word) })
		}
		if slices.Contains(followed, b.document) && slices.ContainsFunc(calls, asked) {
			run = append(run, b.text)
		}
	}
	for _, b := range all {
		if b.message != "" {
			checkMessage(t, b)
			continue
		}
		switch isRun := slices.Contains(run, b.text) || strings.Contains(ci.String(), "\n"+b.text); {
		case b.language == "yaml":
			// TestConventionsManifests
		case b.language == "go":
			checkCode(t, b)
		case isRun && b.notRun != "":
			t.Errorf("%s: a block says that it is not run: %s. A test runs it:\n%s", b.document, b.notRun, b.text)
		case !isRun && b.notRun == "":
			t.Errorf("%s: no test runs this block. Let one, or write <!-- not run: reason --> before it\n%s", b.document, b.text)
		}
	}
	if len(run) == 0 {
		t.Error("got no block that a test runs")
	}
}

// checkMessage requires that a string of the file occurs in the block, with any values for its verbs.
func checkMessage(t *testing.T, b block) {
	t.Helper()
	verb := regexp.MustCompile(`%[a-z]`)
	found := false
	for _, s := range sources(t) {
		if s.Path != b.message {
			continue
		}
		for _, text := range literals(s) {
			if strings.Count(text, " ") > 2 {
				found = found || regexp.MustCompile(verb.ReplaceAllString(regexp.QuoteMeta(text), ".+")).MatchString(b.text)
			}
		}
	}
	if !found {
		t.Errorf("%s: %s has no such message\n%s", b.document, b.message, b.text)
	}
}

// literals returns the strings in a Go file.
func literals(s docs.Source) (all []string) {
	ast.Inspect(s.File, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

// checkCode requires a Go file that has all lines of the block.
func checkCode(t *testing.T, b block) {
	t.Helper()
	if !slices.ContainsFunc(files(t), func(name string) bool {
		if filepath.Ext(name) != ".go" {
			return false
		}
		code := read(t, name)
		for line := range strings.Lines(b.text) {
			if !strings.Contains(code, strings.TrimSpace(line)) {
				return false
			}
		}
		return true
	}) {
		t.Errorf("%s: no Go file has all lines of this block\n%s", b.document, b.text)
	}
}

// walkthroughCalls returns the words with which e2e tests select blocks.
func walkthroughCalls(t *testing.T) (calls [][]string) {
	t.Helper()
	for _, s := range sources(t) {
		if !s.IsTest || !strings.HasPrefix(s.Dir, "e2e/") {
			continue
		}
		ast.Inspect(s.File, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Does", "Tries", "Documented"}, method.Sel.Name) {
				return true
			}
			var words []string
			for i, argument := range call.Args {
				literal, ok := argument.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING || i == 1 && method.Sel.Name == "Documented" {
					continue
				}
				word, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				words = append(words, word)
			}
			if len(words) > 0 {
				calls = append(calls, words)
			}
			return true
		})
	}
	if len(calls) == 0 {
		t.Fatal("got no calls of walkthrough.Admin in e2e")
	}
	return calls
}

// decodeObject decodes an object or a kubeconfig. It returns false for other documents.
func decodeObject(manifest string) (bool, error) {
	decoders := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	if strings.HasPrefix(manifest, "apiVersion: v1\nkind: Config\n") {
		decoders = serializer.NewCodecFactory(clientcmdlatest.Scheme, serializer.EnableStrict).UniversalDeserializer()
	}
	_, _, err := decoders.Decode([]byte(manifest), nil, nil)
	if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
		return false, nil
	}
	return true, err
}

// TestConventionsManifests reads the YAML in the documents: fastadmit's configurations as fastadmit does,
// Kubernetes' objects and kubeconfigs strictly into their types, and everything else as YAML without duplicate
// names. TestConventionsPluginExamples reads the configurations of plugins. The deploy module renders the chart with
// the values.
func TestConventionsManifests(t *testing.T) {
	var names []string
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		names = append(names, plugin.Name)
	}
	compile := func(
		_ string, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType, path *field.Path,
	) (config.Conditions, field.ErrorList) {
		return matchconditions.Compile(conditions, policy, nil, false, path)
	}
	configurations, objects := 0, 0
	check := func(document, text string) {
		for manifest := range strings.SplitSeq("\n"+text, "\n---\n") {
			var content any
			if err := yaml.UnmarshalStrict([]byte(manifest), &content); err != nil {
				t.Errorf("%s: %v in\n%s", document, err, manifest)
			}
			if fields, ok := content.(map[string]any); !ok || fields["kind"] == nil {
				continue
			}
			if isObject, err := decodeObject(manifest); err != nil {
				t.Errorf("%s: %v in\n%s", document, err, manifest)
			} else if isObject {
				objects++
			}
		}
		if !strings.Contains(text, "\nkind: Configuration\n") || !strings.Contains(text, "apiVersion: "+config.APIVersion) {
			return
		}
		configurations++
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Read(config.Source{File: file, Known: names, Compile: compile}); err != nil {
			t.Errorf("%s: %v", document, err)
		}
	}
	for _, b := range blocks(t) {
		if b.language == "yaml" {
			check(b.document, b.text)
		}
	}
	for _, text := range fences(read(t, "README.md"), "yaml") {
		check("README.md", text)
	}
	if configurations < 2 || objects < 10 {
		t.Errorf("got %d configurations and %d objects, want those of README.md and docs/imagereview.md, and more", configurations, objects)
	}
}

// TestConventionsRunbooks checks that the metrics, messages and chart values that runbooks name exist. Package deploy checks
// their sections and queries, package e2e/documents their commands.
func TestConventionsRunbooks(t *testing.T) {
	var logged []string
	for _, s := range sources(t) {
		if !s.IsTest {
			logged = append(logged, literals(s)...)
		}
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "deploy/chart/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	metrics := read(t, "docs/metrics.md")
	metric := regexp.MustCompile(`\bfastadmit_[a-z_]+`)
	part := regexp.MustCompile(`_(bucket|count|sum)$`)
	message := regexp.MustCompile(`grep '(?:"msg":")?([^'"]+)"?'`)
	value := regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)`")
	messages := 0
	for _, name := range documents(t) {
		if !strings.HasPrefix(name, "docs/runbooks/") {
			continue
		}
		page := read(t, name)
		for _, m := range metric.FindAllString(page, -1) {
			if !strings.Contains(metrics, "`"+m+"`") && !strings.Contains(metrics, "`"+part.ReplaceAllString(m, "")+"`") {
				t.Errorf("%s: there is no metric %s", name, m)
			}
		}
		for _, m := range message.FindAllStringSubmatch(page, -1) {
			messages++
			if !slices.ContainsFunc(logged, func(text string) bool { return strings.Contains(text, m[1]) }) {
				t.Errorf("%s: nothing logs %q", name, m[1])
			}
		}
		for _, m := range value.FindAllStringSubmatch(page, -1) {
			if !strings.HasSuffix(m[1], ".fastadmit.io") && !hasValue(values, strings.Split(m[1], ".")) {
				t.Errorf("%s: the chart has no value %s", name, m[1])
			}
		}
	}
	if messages < 10 {
		t.Errorf("got %d messages in docs/runbooks, want more", messages)
	}
}

// hasValue reports whether the chart's values have this one. Whatever is in an empty map, such as plugins, users choose. Words that
// do not begin as a value does are something else.
func hasValue(values map[string]any, path []string) bool {
	if _, ok := values[path[0]]; !ok {
		return true
	}
	for _, name := range path {
		if len(values) == 0 {
			return true
		}
		inside, ok := values[name]
		if !ok {
			return false
		}
		values, _ = inside.(map[string]any)
	}
	return true
}
