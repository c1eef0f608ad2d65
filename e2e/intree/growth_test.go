package intree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/growth"
	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	growthFile = "../../bench/compare/growth.json"

	// setMax bounds how long it may take until policies are in use. Who needs longer is not measured with so many, nor
	// with more.
	setMax = 5 * time.Minute
	// gatekeeperMax is the largest number of policies that Gatekeeper gets: each is a custom kind of its own.
	gatekeeperMax = 1_000
)

var errTooMany = fmt.Errorf("each policy is a custom kind, so that at most %d are created", gatekeeperMax)

// growthReleases are the releases of kube-apiserver that are measured.
var growthReleases = []string{"1.36", "1.37"}

// A grower is an API server whose Pods are reviewed by a growing number of policies.
type grower struct {
	*stand
	by      string
	work    *growth.Work
	setting setting
	// set makes n policies, bindings or parameters be in use. t is the test of this number.
	set     func(ctx context.Context, t *testing.T, n int) error
	created int    // documents in the cluster
	missing string // why it is not measured any more
}

// TestGrowth measures what a create costs with more and more policies, bindings and parameters. The
// environment variable FASTADMIT_GROWTH is the largest number. The tests of each release and work can run alone.
func TestGrowth(t *testing.T) {
	pods, _ := strconv.Atoi(os.Getenv("FASTADMIT_COST"))
	most, _ := strconv.Atoi(os.Getenv("FASTADMIT_GROWTH"))
	if pods == 0 || most == 0 {
		t.Skip("make compare-cluster measures")
	}
	binary := filepath.Join(buildContenders(t, "fastadmit"), "fastadmit")
	for _, release := range growthReleases {
		for _, work := range growth.Works() {
			t.Run(release+"/"+work.Name, func(t *testing.T) {
				result := growth.Cluster{Run: growth.NewRun(t.Context()), Release: release, Work: work.Name}
				for i, evaluators := range evaluatorsOf(release, &work) {
					t.Run(strings.Join(evaluators, ","), func(t *testing.T) {
						all := startGrowers(t, binary, release, &work, evaluators)
						sizes := slices.DeleteFunc(slices.Clone(work.Sizes), func(n int) bool { return n > most })
						for _, n := range sizes {
							t.Run(strconv.Itoa(n), func(t *testing.T) {
								rows := grow(t, all, n, pods)
								result.Rows = append(result.Rows, rows[min(i, 1):]...) // one row without policies is enough
							})
						}
					})
				}
				if os.Getenv("FASTADMIT_COST_WRITE") != "" && !t.Failed() {
					writeGrowth(t, &result)
				}
			})
		}
	}
}

// grow measures all growers in turns with n policies, bindings or parameters.
func grow(t *testing.T, all []*grower, n, pods int) []growth.Create {
	t.Helper()
	took := make([]costs, len(all))
	for _, g := range all {
		g.prepare(t, n)
	}
	for range rounds {
		for i, g := range all {
			if g.missing == "" {
				g.measure(t, &g.setting, &took[i], pods, true)
			}
		}
	}
	rows := make([]growth.Create, len(all))
	for i, g := range all {
		rows[i] = growth.Create{By: g.by, Number: n, Missing: g.missing}
		if g.missing == "" {
			took[i].fill(&rows[i], &took[0])
		}
		t.Logf("%s: %+v", g.by, rows[i])
	}
	return rows
}

// prepare makes n policies be in use. If that fails, the grower is not measured any more, and its API server ends, so that
// it disturbs no others.
func (g *grower) prepare(t *testing.T, n int) {
	t.Helper()
	if g.missing != "" {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), setMax)
	defer cancel()
	begin := time.Now()
	err := g.set(ctx, t, n)
	t.Logf("%s: in use after %s: %v", g.by, time.Since(begin).Round(time.Millisecond), err)
	switch {
	case err == nil:
		return
	case errors.Is(err, errTooMany):
		g.missing = err.Error()
	case ctx.Err() != nil:
		g.missing = fmt.Sprintf("%d were not in use after %s", n, setMax)
	default:
		t.Fatalf("%s: %v", g.by, err)
	}
	g.Kill()
	if webhook := g.setting.webhook; webhook != nil {
		webhook.Kill()
	}
}

// fill sets what creates have cost. base are the costs without policies in the same rounds.
func (c *costs) fill(row *growth.Create, base *costs) {
	in := func(of func(round int) time.Duration) bench.Spread {
		numbers := make([]float64, len(c.api))
		for i := range numbers {
			numbers[i] = microseconds(of(i))
		}
		return bench.NewSpread(numbers)
	}
	row.Server = in(func(i int) time.Duration { return c.api[i] })
	row.Webhook = in(func(i int) time.Duration { return c.webhook[i] })
	row.Added = in(func(i int) time.Duration { return c.api[i] + c.webhook[i] - base.api[i] })
	latencies := slices.Sorted(slices.Values(c.latencies))
	row.Pods = len(latencies)
	row.P50, row.P99 = microseconds(latencies[row.Pods/2]), microseconds(latencies[row.Pods*99/100])
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func writeGrowth(t *testing.T, c *growth.Cluster) {
	t.Helper()
	results, err := growth.Read(growthFile)
	if err != nil {
		t.Fatal(err)
	}
	results.Put(*c)
	if err := results.Write(growthFile); err != nil {
		t.Fatal(err)
	}
}

// evaluatorsOf returns who is measured in turns. Gatekeeper comes when the others are done: with a thousand custom kinds, it and its
// API server compute all the time, which disturbs the others.
func evaluatorsOf(release string, work *growth.Work) [][]string {
	all := [][]string{{growth.InTree, growth.Fastadmit}}
	if newest := growthReleases[len(growthReleases)-1]; release == newest && work.Name == growth.Matching {
		all = append(all, []string{growth.Gatekeeper})
	}
	return all
}

// startGrowers starts the API servers. The first one has no policies.
func startGrowers(t *testing.T, binary, release string, work *growth.Work, evaluators []string) []*grower {
	t.Helper()
	version, known, err := admission.ParseVersion(release)
	if err != nil || !known {
		t.Fatalf("got release %s, %v, want one that can be emulated", release, err)
	}
	etcd, authority := cluster.StartEtcd(t), cluster.NewAuthority(t)
	start := func(by, name string, on ...string) *grower {
		g := &grower{by: by, work: work}
		g.stand = open(t, etcd, cluster.APIServerOptions{Name: name, Prefix: name, On: on, Release: version})
		if err := g.label(t.Context(), "default", map[string]string{"team": growth.Team}); err != nil {
			t.Fatal(err)
		}
		return g
	}
	nobody := start(growth.Nobody, "nobody")
	nobody.set = func(context.Context, *testing.T, int) error { return nil }
	all := []*grower{nobody}
	for _, by := range evaluators {
		var g *grower
		switch by {
		case growth.InTree:
			g = start(by, "in-tree", "ValidatingAdmissionPolicy")
			g.set = func(ctx context.Context, t *testing.T, n int) error {
				return g.putAll(ctx, n, func(document string) string { return document })
			}
		case growth.Fastadmit:
			g = start(by, "fastadmit")
			if work.Name == growth.Parameters { // static policies have none
				g.followCluster(t, binary, authority)
			} else {
				g.readManifests(binary, release, authority)
			}
		case growth.Gatekeeper:
			g = start(by, "gatekeeper")
			process := g.startGatekeeper(t, authority)
			g.register(t, process.Process, process.URL+"/v1/admit", authority)
			g.set = g.putTemplates
		}
		all = append(all, g)
	}
	return all
}

const growthConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: %s, kind: ValidatingAdmissionPolicyConfiguration, %s}
`

const (
	plugin = "--enable-admission-plugins=ValidatingAdmissionPolicy"
	path   = "/validate/ValidatingAdmissionPolicy"
)

// readManifests has a fastadmit of its own started for each number, with the policies in a file.
func (g *grower) readManifests(binary, release string, authority *cluster.Authority) {
	g.set = func(ctx context.Context, t *testing.T, n int) error {
		policies := filepath.Dir(cluster.WriteFile(t, "policies.yaml", g.work.Manifest(n)))
		state := filepath.Dir(cluster.WriteFile(t, "cluster.yaml", []byte(growth.Namespace("default"))))
		config := cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, growthConfig, "apiserver.config.k8s.io/v1",
			fmt.Sprintf("staticManifestsDir: %q", policies)))
		f := cluster.StartFastadmit(t, binary, authority, plugin, "--admission-control-config-file="+config, "--cluster-state-dir="+state,
			"--emulated-version="+release)
		g.register(t, f.Process, f.URL+path, authority)
		return g.awaitLast(ctx, n)
	}
}

// followCluster starts a fastadmit that evaluates custom resources.
func (g *grower) followCluster(t *testing.T, binary string, authority *cluster.Authority) {
	t.Helper()
	g.MustKubectl(t, "", "apply", "-f", "../../deploy/chart/files/policies.crds.yaml")
	g.AwaitCRDs(t)
	config := cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, growthConfig, "fastadmit.io/v1alpha1", "customResources: true"))
	f := cluster.StartFastadmit(t, binary, authority, plugin, "--admission-control-config-file="+config, "--kubeconfig="+g.Kubeconfig(t),
		"--allow-unauthenticated-writes")
	g.register(t, f.Process, f.URL+path, authority)
	g.set = func(ctx context.Context, t *testing.T, n int) error {
		return g.putAll(ctx, n, growth.AsCustomResources)
	}
}

// register replaces the webhook of the API server.
func (g *grower) register(t *testing.T, process *cluster.Process, url string, authority *cluster.Authority) {
	t.Helper()
	api := g.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_ = api.Delete(t.Context(), hookName, metav1.DeleteOptions{}) // it may not exist
	g.setting = setting{webhook: process, hooks: []hook{{url: url, ca: authority.PEM}}}
	if _, err := api.Create(t.Context(), g.setting.validatingHooks(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// putAll creates what is missing of n policies, and waits until they are in use.
func (g *grower) putAll(ctx context.Context, n int, written func(document string) string) error {
	documents := g.work.Documents(n)
	for i := range documents {
		documents[i] = written(documents[i])
	}
	if err := g.put(ctx, documents[g.created:]); err != nil {
		return err
	}
	g.created = len(documents)
	return g.awaitLast(ctx, n)
}

// put creates the objects of YAML documents.
func (s *stand) put(ctx context.Context, documents []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(inFlight)
	for _, document := range documents {
		group.Go(func() error {
			object := new(unstructured.Unstructured)
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				return err
			}
			resource, err := s.Resource(object)
			if err != nil {
				return err
			}
			_, err = resource.Create(ctx, object, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// putTemplates creates the templates of n policies with a constraint each, as far as they do not exist yet, and waits until they
// are in use.
func (g *grower) putTemplates(ctx context.Context, _ *testing.T, n int) error {
	if n > gatekeeperMax {
		return errTooMany
	}
	var templates, constraints []string
	for i := g.created; i < n; i++ {
		templates = append(templates, fmt.Sprintf(template, strconv.Itoa(i), rule(growth.Expression(i))))
		constraints = append(constraints, fmt.Sprintf(constraint, strconv.Itoa(i)))
	}
	g.created = n
	if err := g.put(ctx, templates); err != nil {
		return err
	}
	for i := range constraints {
		put := func() error { return g.put(ctx, constraints[i:i+1]) }
		unknown := func(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) } // its kind is being made
		if err := settle(ctx, put, unknown); err != nil {
			return err
		}
	}
	return g.awaitLast(ctx, n)
}

// awaitLast waits until the last of n policies is in use.
func (g *grower) awaitLast(ctx context.Context, n int) error {
	return settle(ctx, func() error { return g.deny(ctx, n-1) }, func(error) bool { return true })
}

// settle repeats an action until it succeeds or fails with an error that is not to be awaited.
func settle(ctx context.Context, action func() error, temporary func(error) bool) error {
	for {
		err := action()
		if err == nil || !temporary(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// probes is a namespace for the binding that was created last.
const probes = "probes"

// deny returns an error unless something is denied that the policy, binding or parameter with the index does not allow. If
// the webhook has no call for that, it is the first one.
func (g *grower) deny(ctx context.Context, last int) error {
	pod, inTree := g.pod.DeepCopy(), g.setting.webhook == nil
	var err error
	switch {
	case g.work.Name == growth.Others && inTree && last > 0:
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: growth.Annotations(last)},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		_, err = g.Client.CoreV1().Services(pod.Namespace).Create(ctx, service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	case g.work.Name == growth.Bindings && inTree:
		if err := g.label(ctx, probes, map[string]string{"team": growth.TeamOf(last)}); err != nil {
			return err
		}
		growth.Violate(pod, 0)
		pod.Namespace = probes
		_, err = g.create(ctx, pod, true)
	default:
		if g.work.Name == growth.Others || g.work.Name == growth.Bindings {
			last = 0
		}
		growth.Violate(pod, last)
		_, err = g.create(ctx, pod, true)
	}
	return cluster.WantError(err, "denied")
}

// label creates a namespace with labels, or replaces those that it has.
func (s *stand) label(ctx context.Context, name string, labels map[string]string) error {
	api := s.Client.CoreV1().Namespaces()
	namespace, err := api.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		_, err = api.Create(ctx, namespace, metav1.CreateOptions{})
		return err
	}
	maps.Copy(namespace.Labels, labels)
	_, err = api.Update(ctx, namespace, metav1.UpdateOptions{})
	return err
}
