package oracle_test

import (
	"flag"
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/seed"
)

var cases = flag.Int("cases", tally.Cases(250, 10_000), "generated cases for each plugin")

// differencesMax is how many differences of a plugin a failed test shows.
const differencesMax = 5

func newGenerator(start uint64) *generator {
	funcs := fuzzer.MergeFuzzerFuncs(apitesting.FuzzerFuncs)
	f := fuzzer.FuzzerFor(funcs, rand.NewSource(int64(start)), legacyscheme.Codecs)
	return &generator{
		Rand: randv2.New(randv2.NewPCG(start, 0)),
		fuzz: func(internal runtime.Object) { f.Fill(internal) },
	}
}

// TestMain silences Kubernetes' log of denials, of which there are thousands.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(klog.Logger{})
	os.Exit(m.Run())
}

// policyPlugins are tested in package policies: their cases are policies, for which there is no
// World.
var policyPlugins = []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}

// untested are plugins that v1.36 alone has. Package twins compares them with its API server.
var untested = []string{"JobValidation", "PodGroupWorkloadExists"}

// TestCoverage fails if a plugin is not tested.
func TestCoverage(t *testing.T) {
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		if slices.Contains(policyPlugins, p.Name) || slices.Contains(untested, p.Name) {
			continue
		}
		if !slices.ContainsFunc(suites(), func(s suite) bool { return s.name == p.Name }) {
			t.Errorf("%s: got no suite, want one in suites_test.go", p.Name)
		}
	}
}

// TestGenerated compares Kubernetes and fastadmit for generated requests.
func TestGenerated(t *testing.T) {
	for _, s := range suites() {
		t.Run(s.name, func(t *testing.T) {
			start := seed.Of(t)
			row := tally.Row{Plugin: s.name, Test: "generated in process"}
			for i, v := range s.variants {
				g := newGenerator(start + uint64(i))
				var did done
				for range v.worlds() {
					var world oracle.World
					if v.world != nil {
						world = v.world(g)
					}
					upstream, ours := s.implementations(t, &v, world)
					n := *cases/len(s.variants)/v.worlds() + 1
					if s.background {
						s.generated(t, n, &row, v, g, &did, upstream, ours)
						continue
					}
					// In a bubble the clock stands still unless the test sleeps, so both
					// plugins see the same time.
					synctest.Test(t, func(t *testing.T) { s.generated(t, n, &row, v, g, &did, upstream, ours) })
				}
				s.matters(t, &v, &did)
			}
			mustWrite(t, row)
		})
	}
}

// done counts the cases that Kubernetes denied, changed or warned about.
type done struct{ cases, denied, changed, warned int }

// generated compares n generated cases.
func (s *suite) generated(t *testing.T, n int, row *tally.Row, v variant, g *generator, did *done, upstream, ours oracle.Implementation) {
	for range n {
		time.Sleep(time.Duration(g.IntN(int(s.pause) + 1)))
		c := s.generate(g)
		if g.in(4) {
			g.spoil(c)
		}
		if s.settle != nil {
			s.settle(c)
		}
		c.Message = s.message
		c.About = strings.TrimSpace(fmt.Sprintf("%s case %d", v.about, did.cases))
		did.cases++
		comparison := compare(t, c, upstream, ours)
		if !comparison.Skipped {
			row.Cases++
		}
		if comparison.Difference != "" {
			if row.Different = append(row.Different, c.About); len(row.Different) == differencesMax {
				mustWrite(t, *row)
				t.Fatal("and perhaps more")
			}
		}
		if comparison.Denied {
			did.denied++
		}
		if comparison.Changed {
			did.changed++
		}
		if comparison.Warned {
			did.warned++
		}
	}
}

// matters fails if Kubernetes' plugin rarely acts on the generated requests, because such a test proves
// little.
func (s *suite) matters(t *testing.T, v *variant, did *done) {
	t.Logf("%s: %d cases, of which Kubernetes denied %d, changed %d and warned of %d", v.about, did.cases, did.denied, did.changed,
		did.warned)
	if least := did.cases / 100; s.denies && did.denied < least || s.changes && did.changed < least || s.warns && did.warned < least {
		t.Errorf("%s: got so few cases that matter, want at least %d", v.about, did.cases/100)
	}
}

func compare(t *testing.T, c *oracle.Case, upstream, ours oracle.Implementation) oracle.Comparison {
	t.Helper()
	comparison, err := oracle.Compare(c, upstream, ours)
	if err != nil {
		t.Fatalf("%s: %v", c.About, err)
	}
	if comparison.Difference != "" {
		t.Errorf("%s: %s", c.About, comparison.Difference)
	}
	return comparison
}

// TestOrder compares the order of the table with that of kube-apiserver.
func TestOrder(t *testing.T) {
	last := -1
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		if p.LastRelease != "" {
			continue
		}
		place := slices.Index(options.AllOrderedPlugins, p.Name)
		if place <= last {
			t.Errorf("%s: got a line behind that of %s, which comes later in kube-apiserver", p.Name, options.AllOrderedPlugins[last])
		}
		last = place
		if defaults := !options.DefaultOffAdmissionPlugins().Has(p.Name); defaults != p.OnByDefault {
			t.Errorf("%s: got on by default %v, want %v", p.Name, p.OnByDefault, defaults)
		}
	}
}

// TestOperations compares the operations that the rules of a plugin have with those
// that Kubernetes' plugin handles.
func TestOperations(t *testing.T) {
	// In-tree handles these, and always allows them unchanged.
	needless := map[string][]admission.Operation{
		"Priority":                     {admission.Delete},
		"NodeDeclaredFeatureValidator": {admission.Create}, // of ResourceSlices, with a feature gate that is off
	}
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		i := slices.IndexFunc(suites(), func(s suite) bool { return s.name == p.Name })
		if p.LastRelease != "" || slices.Contains(policyPlugins, p.Name) {
			continue
		}
		handles, err := oracle.Handles(t.Context(), p.Name, suites()[i].variants[0].config)
		if err != nil {
			t.Fatal(err)
		}
		for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
			got := slices.ContainsFunc(p.Rules, func(r fastadmit.Rule) bool {
				return slices.Contains(r.Operations, codec.Operation(operation)) || slices.Contains(r.Operations, fastadmit.AnyOperation)
			})
			if want := handles(operation) && !slices.Contains(needless[p.Name], operation); got != want {
				t.Errorf("%s: got rules for %s %v, want %v", p.Name, operation, got, want)
			}
		}
	}
}
