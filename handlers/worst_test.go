//go:build linux

package handlers_test

import (
	"context"
	"errors"
	"flag"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

const (
	// ratioMax is how much more the review with four times the size may cost. Linear code
	// costs 4 times as much, sorting a little more, quadratic code 16 times. On a busy machine, others empty the
	// processor's caches: linear code was seen to cost 7.5 times as much.
	ratioMax = 10
	// cpuFloor, per element, and bytesFloor are costs of the larger review below which its
	// ratio is not significant, because first uses of memory and a busy machine dominate.
	// Comparing each of 10,000 elements with each other takes longer than that, and at one
	// byte per pair needs more memory.
	cpuFloor   = 10 * time.Microsecond
	bytesFloor = 32 << 20
	// worstTries is how often a case is measured whose ratio is too high.
	worstTries = 4
)

// worstN is the number of elements in the smaller review. The larger one has four times as
// many.
var worstN = flag.Int("worst", 2_500, "things in the smaller of two reviews whose costs are compared")

// worstChain returns a chain of one plugin in a cluster that has these objects.
func worstChain(t testing.TB, plugin admission.Plugin, objects []k8sruntime.Object) *admission.Chain {
	t.Helper()
	deny := func(_ context.Context, r *authorizationv1.SubjectAccessReview) { r.Status.Allowed = false }
	var needs []cluster.Need
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		needs = append(needs, p.Needs...)
	}
	state, err := cluster.New(cluster.Options{Objects: objects, Authorize: deny, Kinds: cluster.KindsOf(needs...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(context.Background(), plugin.Needs...); err != nil {
		t.Fatal(err)
	}
	enabled := admission.Enabled{Config: configOf(plugin.Name), Kubeconfig: []byte(unreachable)}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// A cost is the cost of a review: time of its thread, and allocated memory.
type cost struct {
	cpu     time.Duration
	bytes   uint64
	outcome admission.Outcome
}

func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// measure processes a body as the server does, but with more time: on a busy machine, a
// timeout would hide quadratic code.
func measure(t testing.TB, chain *admission.Chain, phase admission.Phase, body []byte) cost {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	review := codec.Acquire()
	defer review.Release()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := threadTime()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	outcome, _ := chain.Review(ctx, review, phase) // a failure has a cost, too
	response := review.AppendResponse(nil)
	c := cost{cpu: threadTime() - start, outcome: outcome}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(response)
	c.bytes = after.TotalAlloc - before.TotalAlloc
	if after.HeapAlloc > 512<<20 {
		runtime.GC()
	}
	return c
}

// check measures a plugin with n and 4n elements, and reports an error if the cost is not
// linear.
func check(t *testing.T, name string, small, large func() cost) {
	t.Helper()
	b := large()
	floor := time.Duration(4**worstN) * cpuFloor
	if b.cpu < floor && b.bytes < bytesFloor && !testing.Verbose() {
		return
	}
	a := small()
	isTooMuch := func() bool {
		return b.cpu > floor && b.cpu > ratioMax*a.cpu || b.bytes > bytesFloor && b.bytes > ratioMax*a.bytes
	}
	for range worstTries - 1 {
		if !isTooMuch() {
			break
		}
		x, y := large(), small()
		b.cpu, b.bytes, a.cpu, a.bytes = min(b.cpu, x.cpu), min(b.bytes, x.bytes), min(a.cpu, y.cpu), min(a.bytes, y.bytes)
	}
	report := t.Logf
	if isTooMuch() {
		report = t.Errorf
	}
	report("%s: %d: %v, %d KB; %d: %v, %d KB; ratios %.1f and %.1f; %s", name, *worstN, a.cpu.Round(10*time.Microsecond), a.bytes>>10,
		4**worstN, b.cpu.Round(10*time.Microsecond), b.bytes>>10,
		float64(b.cpu)/float64(max(a.cpu, 1)), float64(b.bytes)/float64(max(a.bytes, 1)), b.outcome)
}

// quiet turns the garbage collector off for a test that measures, and locks it to one
// thread.
func quiet(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	percent := debug.SetGCPercent(-1)
	runtime.LockOSThread()
	t.Cleanup(func() {
		runtime.UnlockOSThread()
		debug.SetGCPercent(percent)
	})
}

// TestWorst has each plugin answer the largest reviews of each shape. It fails if a review
// with four times the elements takes more than ten times as long or as much memory. "make
// worst" prints all measurements.
func TestWorst(t *testing.T) {
	quiet(t)
	all := handlers.InTree(handlers.DefaultOptions())
	chains := make([]*admission.Chain, len(all))
	for i := range all {
		chains[i] = worstChain(t, all[i], state())
	}
	for _, s := range shapes() {
		var known [2]struct{ small, large []byte } // indexed by user
		for i, chain := range chains {
			if !s.isFor(&all[i]) {
				continue
			}
			user := userOf(&all[i])
			bodies := &known[user]
			if bodies.small == nil {
				bodies.small, bodies.large = s.body(*worstN, users[user]), s.body(4**worstN, users[user])
			}
			for _, phase := range phasesOf(&all[i]) {
				check(t, all[i].Name+" "+phase.String()+", "+string(s.operation)+" "+s.resource+", "+s.name,
					func() cost { return measure(t, chain, phase, bodies.small) },
					func() cost { return measure(t, chain, phase, bodies.large) })
			}
		}
	}
}

// users are the senders of reviews: a person and a node.
var users = [...]string{`{"username":"jane"}`, `{"username":"system:node:n1","groups":["system:nodes"]}`}

func userOf(p *admission.Plugin) int {
	if p.Name == "NodeRestriction" { // it ignores other users
		return 1
	}
	return 0
}

func phasesOf(p *admission.Plugin) (phases []admission.Phase) {
	if p.Mutates {
		phases = append(phases, admission.Mutate)
	}
	if p.Validates {
		phases = append(phases, admission.Validate)
	}
	return phases
}

// isFor reports whether the plugin handles the review.
func (s *shape) isFor(p *admission.Plugin) bool {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(s.body(1, `{}`)); err != nil {
		panic(err)
	}
	attributes := admission.AttributesOf(review)
	return slices.ContainsFunc(p.Rules, func(r admission.Rule) bool { return r.Matches(&attributes) })
}

// TestWorstCluster is TestWorst with objects of the cluster that have as many elements as
// the review.
func TestWorstCluster(t *testing.T) {
	quiet(t)
	namespace := func(annotations map[string]string) k8sruntime.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace", Annotations: annotations}}
	}
	class := func(scheduling *nodev1.Scheduling) []k8sruntime.Object {
		return []k8sruntime.Object{&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "h",
			Scheduling: scheduling}}
	}
	selector := func(n int) map[string]string {
		m := make(map[string]string, n)
		for i := range n {
			m["k"+strconv.Itoa(i)] = "v"
		}
		return m
	}
	f := func(plugin, name string, objects func(n int) []k8sruntime.Object, spec func(n int) string) {
		t.Helper()
		all := handlers.InTree(handlers.DefaultOptions())
		p := all[slices.IndexFunc(all, func(p admission.Plugin) bool { return p.Name == plugin })]
		s := shape{"", "v1/pods", codec.Create, func(n int) (string, string) { return pod("", spec(n)), "null" }, ""}
		for _, phase := range phasesOf(&p) {
			run := func(n int) func() cost {
				chain, body := worstChain(t, p, objects(n)), s.body(n, users[0])
				return func() cost { return measure(t, chain, phase, body) }
			}
			check(t, plugin+" "+phase.String()+", "+name, run(*worstN), run(4**worstN))
		}
	}
	annotated := func(n int) []k8sruntime.Object {
		return []k8sruntime.Object{namespace(map[string]string{"scheduler.alpha.kubernetes.io/node-selector": selectorOf(n)})}
	}
	defaults := func(n int) []k8sruntime.Object {
		return []k8sruntime.Object{namespace(map[string]string{
			"scheduler.alpha.kubernetes.io/defaultTolerations":   list(n, `{"key":"k#","operator":"Exists"}`),
			"scheduler.alpha.kubernetes.io/tolerationsWhitelist": list(n, `{"key":"k#","operator":"Exists"}`),
		})}
	}
	one := func(int) string { return oneContainer }
	same := func(n int) string { return `"nodeSelector":` + members(n, `"k#":"v"`) }
	others := func(n int) string { return `"nodeSelector":` + members(n, `"l#":"v"`) }
	tolerated := func(n int) string { return `"tolerations":` + list(n, `{"key":"k#","operator":"Equal","value":"v"}`) }
	f("PodNodeSelector", "labels of a namespace", annotated, one)
	f("PodNodeSelector", "labels of a namespace and other ones", annotated, others)
	f("PodNodeSelector", "labels of a namespace and the same", annotated, same)
	f("PodTolerationRestriction", "tolerations of a namespace", defaults, tolerated)
	f("RuntimeClass", "labels of a class",
		func(n int) []k8sruntime.Object { return class(&nodev1.Scheduling{NodeSelector: selector(n)}) }, others)
	f("RuntimeClass", "labels of a class and the same",
		func(n int) []k8sruntime.Object { return class(&nodev1.Scheduling{NodeSelector: selector(n)}) }, same)
	f("RuntimeClass", "tolerations of a class",
		func(n int) []k8sruntime.Object { return class(&nodev1.Scheduling{Tolerations: tolerationsOf(n)}) }, tolerated)
	f("LimitRanger", "defaults", func(n int) []k8sruntime.Object {
		return []k8sruntime.Object{&corev1.LimitRange{ObjectMeta: named("limits"),
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Default: amounts(n, "1"), DefaultRequest: amounts(n, "1"), Max: amounts(n, "2")}}}}}
	}, one)
}

// A counted context ends after a number of calls of Err.
type counted struct {
	context.Context
	left, asked int
}

func (c *counted) Err() error {
	if c.asked++; c.asked > c.left {
		return context.DeadlineExceeded
	}
	return nil
}

// review answers the review of a body, and returns the number of calls of ctx.Err.
func review(t testing.TB, chain *admission.Chain, phase admission.Phase, body []byte, left int) (asked int, err error) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	ctx := &counted{Context: context.Background(), left: left}
	_, err = chain.Review(ctx, review, phase)
	return ctx.asked, err
}

// TestWorstEnds checks that plugins stop soon after the context of their review ends, and
// fail, whatever list of the review is long.
func TestWorstEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n = 2100 // enough for two checks of the context in a loop
	// after is the number of further checks of a plugin, which has several loops.
	const after = 10
	// looks are lists that once took quadratic time.
	looks := map[string]string{"NodeRestriction": "Node's labels, changed", "RuntimeClass": "tolerations"}
	asking := make(map[string]bool)
	var known [2]map[int][]byte // bodies, by user and shape
	for i := range known {
		known[i] = make(map[int][]byte)
	}
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		chain, bodies := worstChain(t, p, state()), known[userOf(&p)]
		for i, s := range shapes() {
			if s.operation != codec.Create && !strings.HasSuffix(s.name, "changed") || !s.isFor(&p) {
				continue
			}
			if bodies[i] == nil {
				bodies[i] = s.body(n, users[userOf(&p)])
			}
			body := bodies[i]
			for _, phase := range phasesOf(&p) {
				all, _ := review(t, chain, phase, body, math.MaxInt)
				if phase == admission.Mutate && looks[p.Name] == s.name && all < 2 {
					t.Errorf("%s %s, %s: looked %d times at the context, want at least 2", p.Name, phase, s.name, all)
				}
				for _, left := range []int{0, 1} {
					if left >= all {
						continue
					}
					asking[p.Name] = true
					asked, err := review(t, chain, phase, body, left)
					if !errors.Is(err, context.DeadlineExceeded) || asked > left+after {
						t.Errorf("%s %s, %s %s, %s: ended after %d looks, it looked %d more times and said %v",
							p.Name, phase, s.operation, s.resource, s.name, left, asked-left, err)
					}
				}
			}
		}
	}
	// Others read no lists, or stop at the first denial.
	want := []string{
		"AlwaysPullImages", "CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest", "DefaultTolerationSeconds",
		"ExtendedResourceToleration",
		"ImagePolicyWebhook", "InitialResources", "Initializers", "LimitPodHardAntiAffinityTopology", "LimitRanger",
		"NodeRestriction", "OwnerReferencesPermissionEnforcement",
		"PersistentVolumeLabel", "PodGroupProtection", "PodPreset", "PodSecurity", "PodSecurityPolicy",
		"PodTolerationRestriction", "ResourceQuota",
		"RuntimeClass", "SecurityContextDeny", "ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition",
	}
	if got := slices.Sorted(maps.Keys(asking)); !slices.Equal(got, want) {
		t.Errorf("these look at the context: %q\nwant %q", got, want)
	}
}
