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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers/matchconditions"
	"github.com/fastadmit/fastadmit/handlers/plugins"
	"github.com/fastadmit/fastadmit/internal/config"
)

// A block is a fenced block that a person wrote, not a test.
type block struct {
	document, language, text string
	notRun                   string // why no test runs it
}

var (
	writtenBlock  = regexp.MustCompile("(?ms)(?:^ *<!-- not run: ([^\n]+) -->\n)?^( *)```([a-z]*)\n(.*?)^ *```$")
	comparedBlock = regexp.MustCompile(`(?s)<!-- compare: .*?<!-- end -->`)
)

// blocks returns the blocks of the documents for users.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	for _, name := range documents(t) {
		if name != "README.md" && name != "deploy/chart/README.md" && filepath.Dir(name) != "docs" {
			continue
		}
		text := comparedBlock.ReplaceAllString(generated.ReplaceAllString(read(t, name), ""), "")
		for _, m := range writtenBlock.FindAllStringSubmatch(text, -1) {
			all = append(all, block{name, m[3], strings.ReplaceAll("\n"+m[4], "\n"+m[2], "\n")[1:], m[1]})
		}
	}
	return all
}

// followed are the documents whose blocks package e2e/operator runs.
var followed = []string{"docs/operations.md", "docs/podsecuritypolicy.md", "docs/managed-clusters.md"}

// TestConventionsBlocks wants each command and output in the documents to be run by a test, or to say why it is not. The
// generated blocks are run by TestConventionsGenerated. A block of followed is run by the e2e test that calls
// operator.Operator with words that it has, and so is the same block elsewhere.
func TestConventionsBlocks(t *testing.T) {
	calls := operatorCalls(t)
	ci := read(t, ".ci/run")
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
		switch isRun := slices.Contains(run, b.text) || strings.Contains(ci, "\n"+b.text); {
		case b.language == "yaml":
			// TestConventionsManifests
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

// operatorCalls returns the words with which e2e tests select blocks.
func operatorCalls(t *testing.T) (calls [][]string) {
	t.Helper()
	for _, s := range sources(t) {
		if !s.isTest || !strings.HasPrefix(s.dir, "e2e/") {
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
		t.Fatal("got no calls of operator.Operator in e2e")
	}
	return calls
}

// TestConventionsManifests reads the YAML in the documents: fastadmit's configurations as fastadmit does, everything else as
// YAML without a name twice. The deploy module renders the chart with the values.
func TestConventionsManifests(t *testing.T) {
	var names []string
	for _, plugin := range plugins.InTree(plugins.DefaultOptions()) {
		names = append(names, plugin.Name)
	}
	compile := func(conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType, path *field.Path) (config.Conditions, field.ErrorList) {
		return matchconditions.Compile(conditions, policy, nil, path)
	}
	configurations := 0
	check := func(document, text string) {
		for manifest := range strings.SplitSeq("\n"+text, "\n---\n") {
			var content any
			if err := yaml.UnmarshalStrict([]byte(manifest), &content); err != nil {
				t.Errorf("%s: %v in\n%s", document, err, manifest)
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
	if configurations < 2 {
		t.Errorf("got %d configurations, want those of README.md and docs/imagereview.md", configurations)
	}
}
