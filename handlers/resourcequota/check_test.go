package resourcequota

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// scoped is an item in one scope; with err, it cannot tell.
type scoped struct {
	unscoped
	scope corev1.ResourceQuotaScope
	err   error
}

func (s scoped) matches(selector corev1.ScopedResourceSelectorRequirement) (bool, error) {
	return selector.ScopeName == s.scope, s.err
}

// inScope adds a scope to a quota.
func inScope(scope corev1.ResourceQuotaScope, q *corev1.ResourceQuota) *corev1.ResourceQuota {
	q.Spec.Scopes = []corev1.ResourceQuotaScope{scope}
	return q
}

// A checked is a case of a demand of Pods.
type checked struct {
	used, old corev1.ResourceList // old is nil for a creation
	scope     corev1.ResourceQuotaScope
	oldScope  corev1.ResourceQuotaScope
	limited   []limitedResource
	quotas    []*corev1.ResourceQuota
	charged   []string
}

func (c *checked) demand() *demand {
	d := &demand{evaluator: pods{}, name: "pods", limited: c.limited, object: scoped{scope: c.scope}, used: c.used}
	if c.old != nil {
		d.update, d.old, d.oldUsed = true, scoped{scope: c.oldScope}, c.old
	}
	return d
}

// checkQuotas compares the usage of the quotas after a check, or its error, with want.
func checkQuotas(t *testing.T, name string, c checked, want ...string) {
	t.Helper()
	after, err := c.demand().check(c.quotas, c.charged)
	var got []string
	for _, q := range after {
		got = append(got, show(q.Status.Used))
	}
	if err != nil {
		got = []string{err.Error()}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s:\n got %q\nwant %q", name, got, want)
	}
}

// allQuotas returns one quota of pods with this number in use.
func allQuotas(used string) []*corev1.ResourceQuota {
	return []*corev1.ResourceQuota{quota(home, "q", resources("pods", "9"), resources("pods", used))}
}

// limitOf returns a configured limit of a resource, given as "group/name" or "name".
func limitOf(name string, parts ...string) limitedResource {
	group, resource, ok := strings.Cut(name, "/")
	if !ok {
		group, resource = "", name
	}
	return limitedResource{APIGroup: group, Resource: resource, MatchContains: parts}
}

// scopeLimits returns a configured limit of pods in the scope Terminating.
func scopeLimits() (exists corev1.ScopedResourceSelectorRequirement, limited []limitedResource) {
	exists = corev1.ScopedResourceSelectorRequirement{
		ScopeName: corev1.ResourceQuotaScopeTerminating, Operator: corev1.ScopeSelectorOpExists,
	}
	return exists, []limitedResource{{Resource: "pods", MatchScopes: []corev1.ScopedResourceSelectorRequirement{exists}}}
}

// TestCheck checks demands against quotas: the result is the usage, or a refusal.
func TestCheck(t *testing.T) {
	f := func(name string, c checked, want ...string) { t.Helper(); checkQuotas(t, name, c, want...) }
	one := resources("pods", "1")
	f("counted", checked{used: one, quotas: allQuotas("3")}, "pods=4")
	f("negative", checked{used: resources("cpu", "-1"), quotas: allQuotas("3")}, "quota usage is negative for resource(s): cpu")
	f("charged before", checked{used: one, quotas: allQuotas("3"), charged: []string{"q"}}, "pods=3")

	// Limited resources, which need a quota.
	const insufficient = "insufficient quota to consume: pods"
	f("no quota", checked{used: one, limited: []limitedResource{limitOf("pods", "pods")}}, insufficient)
	f("said twice", checked{used: one, limited: []limitedResource{limitOf("pods", "pods"), limitOf("pods", "po")}}, insufficient)
	f("another resource", checked{used: one, limited: []limitedResource{limitOf("services", "pods")}})
	f("another group", checked{used: one, limited: []limitedResource{limitOf("apps/pods", "pods")}})
	f("another, then this", checked{used: one, limited: []limitedResource{limitOf("services", "pods"), limitOf("pods", "pods")}},
		insufficient)
	f("nothing used", checked{used: resources("pods", "1", "cpu", "0"), limited: []limitedResource{limitOf("pods", "cpu")}})
	f("no more than before", checked{used: one, old: one, limited: []limitedResource{limitOf("pods", "pods")}})
	f("one more than before", checked{used: resources("pods", "2"), old: one, limited: []limitedResource{limitOf("pods", "pods")}},
		insufficient)
	f("covered", checked{used: one, limited: []limitedResource{limitOf("pods", "pods")}, quotas: allQuotas("3")}, "pods=4")

	f("no more of what no quota covers", checked{
		used: resources("pods", "1", "cpu", "1"), old: resources("pods", "1", "cpu", "1"),
		limited: []limitedResource{limitOf("pods", "cpu")}, quotas: allQuotas("3"),
	}, "pods=3")

	// A quota that is exceeded in one resource does not stop the use of others.
	over := quota(home, "over", resources("pods", "9", "cpu", "1"), resources("pods", "3", "cpu", "5"))
	f("over in another resource", checked{used: one, quotas: []*corev1.ResourceQuota{over}}, "cpu=5,pods=4")
	f("over", checked{used: resources("cpu", "1"), quotas: []*corev1.ResourceQuota{over}},
		"exceeded quota: over, requested: cpu=1, used: cpu=5, limited: cpu=1")
}

// TestCheckScopes has scopes in which objects need a quota.
func TestCheckScopes(t *testing.T) {
	f := func(name string, c checked, want ...string) { t.Helper(); checkQuotas(t, name, c, want...) }
	one := resources("pods", "1")
	const terminating = corev1.ResourceQuotaScopeTerminating
	exists, scopes := scopeLimits()
	f("no quota of the scope", checked{used: one, scope: terminating, limited: scopes, quotas: allQuotas("3")},
		fmt.Sprintf("insufficient quota to match these scopes: %v", []corev1.ScopedResourceSelectorRequirement{exists}))
	f("not in the scope", checked{used: one, limited: scopes, quotas: allQuotas("3")}, "pods=4")
	f("a quota of the scope", checked{used: one, scope: terminating, limited: scopes,
		quotas: []*corev1.ResourceQuota{inScope(terminating, allQuotas("3")[0])}}, "pods=4")

	// An object that moves into a quota's scope is charged completely.
	moved := checked{used: one, old: one, scope: terminating, oldScope: "Other",
		quotas: []*corev1.ResourceQuota{inScope(terminating, allQuotas("3")[0])}}
	f("into the scope", moved, "pods=4")
	moved.oldScope = terminating
	f("in the scope before", moved, "pods=3")
	moved.used = resources("pods", "3")
	f("in the scope before, with less", moved, "pods=5")
	both := checked{used: one, old: one, scope: terminating, oldScope: "Other",
		quotas: []*corev1.ResourceQuota{inScope(terminating, allQuotas("3")[0]), allQuotas("5")[0]}}
	f("into one of two", both, "pods=4", "pods=5")
	both.quotas[0], both.quotas[1] = both.quotas[1], both.quotas[0]
	f("into the other", both, "pods=5", "pods=4")

	// A quota of other resources has no effect, whatever its scope.
	others := inScope(terminating, quota(home, "others", resources("services", "9"), resources("services", "0")))
	f("under no quota of Pods", checked{
		used: one, old: one, scope: terminating, oldScope: "Other", limited: []limitedResource{limitOf("pods", "pods")},
		quotas: []*corev1.ResourceQuota{others},
	}, "services=0")
}

// TestCheckErrors has scopes that match nothing, and selectors that are invalid.
func TestCheckErrors(t *testing.T) {
	// A quota of another scope does not cover the object.
	one := resources("pods", "1")
	_, scopes := scopeLimits()
	const terminating = corev1.ResourceQuotaScopeTerminating
	const best = corev1.ResourceQuotaScopeBestEffort
	d := (&checked{used: one, limited: scopes}).demand()
	d.object = measured(t, pods{}, `{"spec":{"activeDeadlineSeconds":1}}`)
	if _, err := d.check([]*corev1.ResourceQuota{inScope(best, allQuotas("3")[0])}, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "insufficient quota to match these scopes: ") {
		t.Errorf("got %v", err)
	}

	// An invalid selector: as upstream, the request is allowed if it is in the
	// configuration, and denied if it is in a quota.
	odd := &checked{used: one, quotas: []*corev1.ResourceQuota{inScope(terminating, quota(home, "q", one, one))}}
	d = odd.demand()
	d.object = scoped{err: errors.New("odd")}
	if _, err := d.check(odd.quotas, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "error matching scopes of quota q, err: error on matching scope ") {
		t.Errorf("got %v", err)
	}
	d.limited = scopes
	if after, err := d.check(odd.quotas, nil); err != nil || len(after) != 1 || after[0] != odd.quotas[0] {
		t.Errorf("got %v, %v", after, err)
	}
	d = odd.demand()
	d.object, d.update, d.old = scoped{scope: terminating}, true, scoped{err: errors.New("odd")}
	if _, err := d.check(odd.quotas, nil); err == nil || err.Error() != "odd" {
		t.Errorf("got %v", err)
	}
}

// TestChargeUnlimited has a quota that does not limit the used resources: it is not copied.
func TestChargeUnlimited(t *testing.T) {
	q := quota(home, "q", resources("cpu", "9"), resources("cpu", "1"))
	if got, err := new(demand).charge(q, resources("pods", "1")); err != nil || got != q {
		t.Errorf("got %v, %v, want the quota itself", got, err)
	}
}

// TestOldObject has updates with and without an old object.
func TestOldObject(t *testing.T) {
	f := func(old string, wantOld, wantMissing, wantErr bool) {
		t.Helper()
		d, err := newDemand(t.Context(), decoded(t, admissiontest.UpdateBody("v1/pods", `{}`, old)), pods{}, nil)
		if (err != nil) != wantErr {
			t.Fatalf("%s: got %v", old, err)
		}
		if err == nil && ((d.old != nil) != wantOld || d.oldMissing != wantMissing) {
			t.Errorf("%s: got %+v", old, d)
		}
	}
	f(`null`, false, true, false)
	f(`{}`, false, false, false)
	f(`{"metadata":{"resourceVersion":"1"}}`, true, false, false)
	f(`{"metadata":{"resourceVersion":"1","deletionTimestamp":"soon"}}`, false, false, true)
	f(`{"metadata":{"deletionTimestamp":"soon"}}`, false, false, false)
}

// TestReadInPart has a Pod that is too large to be read: nothing is charged.
func TestReadInPart(t *testing.T) {
	a := newAPIServer(t, quota(home, "q", resources("pods", "9"), resources("pods", "0")))
	many := strings.Repeat("{},", codec.MemoryMax>>10)
	body := admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":[`+many+`{}]}}`)
	response, outcome := admissiontest.Respond(t, a.replica(), admission.Validate, body, nil)
	if outcome != admission.OutcomeDenied || !strings.Contains(string(response), `"code":413`) || a.used("q", "pods") != 0 {
		t.Errorf("got %s, %s, %d used", outcome, response, a.used("q", "pods"))
	}
}

// TestVersions has the ledger know newer and older versions of a quota than the watch, and
// its deletion.
func TestVersions(t *testing.T) {
	a := newAPIServer(t)
	q := quota(home, "q", resources("pods", "9"), resources("pods", "0"))
	a.version = 7
	a.put(q) // becomes version 8, the watch's
	a.put(quota(home, "r", resources("pods", "9"), resources("pods", "0")))
	l := newLedger(cluster.ResourceQuotas.In(a.state().View(Plugin().Needs...)))
	version := func(n string) *corev1.ResourceQuota {
		q := q.DeepCopy()
		q.ResourceVersion = n
		return q
	}
	f := func(name, want string, known int) {
		t.Helper()
		for range 2 { // current must not change the watch's list
			got := "none"
			for _, q := range l.current(home) {
				if q.Name == "q" {
					got = q.ResourceVersion + map[bool]string{true: " gone"}[isGone(q)]
				}
			}
			if got != want || l.written.Len() != known {
				t.Errorf("%s: got %s, %d known, want %s, %d", name, got, l.written.Len(), want, known)
			}
		}
		if watched, _ := l.quotas.Cached(home, "q"); watched.ResourceVersion != "8" || isGone(watched) {
			t.Errorf("%s: changed what the watch has to %s", name, watched.ResourceVersion)
		}
	}
	f("nothing known", "8", 0)
	l.note(version("7"))
	f("older", "8", 0)
	l.note(version("8"))
	f("the same", "8", 0)
	l.note(version("10")) // sorted before "8" as text
	f("newer", "10", 1)
	l.note(version("9"))
	f("not as new", "10", 1)
	l.note(version("11"))
	f("newer still", "11", 1)

	l.written.Purge()
	l.note(without(version("8")))
	f("gone", "8 gone", 1)
	l.written.Purge()
	l.note(without(version("7")))
	f("gone, and made again", "8", 0)
}

// TestNoAnswer has writes and reads of a quota fail: the known version counts.
func TestNoAnswer(t *testing.T) {
	a := newAPIServer(t, quota(home, "r", resources("pods", "1"), resources("pods", "0")))
	chain := a.replica()
	a.before = func(*corev1.ResourceQuota) *apierrors.StatusError {
		return apierrors.NewInternalError(errors.New("no leader"))
	}
	a.reads = apierrors.NewForbidden(corev1.Resource("resourcequotas"), "r", errors.New("no RBAC for reads"))
	outcome, err := chain.Review(t.Context(), decoded(t, admissiontest.Body(codec.Create, "v1/pods", podBody)), admission.Validate)
	if outcome != admission.OutcomeErrored || err == nil || !strings.Contains(err.Error(), "no RBAC for reads") {
		t.Errorf("got %s, %v", outcome, err)
	}
	a.before, a.reads = nil, nil
	for _, want := range []admission.Outcome{admission.OutcomeAllowed, admission.OutcomeDenied} {
		if outcome, response := create(t, chain); outcome != want {
			t.Errorf("got %s, %s, want %s", outcome, response, want)
		}
	}
}

// TestDeniedInRound has a charge that is denied in a round in which another charge's quota
// cannot be written: its changes of the round before do not count.
func TestDeniedInRound(t *testing.T) {
	a := newAPIServer(t, quota(home, "a", resources("pods", "0"), resources("pods", "0")),
		quota(home, "b", resources("services", "9"), resources("services", "0")))
	l := newLedger(cluster.ResourceQuotas.In(a.state().View(Plugin().Needs...)))
	a.before = func(*corev1.ResourceQuota) *apierrors.StatusError {
		return apierrors.NewConflict(corev1.Resource("resourcequotas"), "b", errors.New("the object has been modified"))
	}
	index := 0 // of a
	if l.current(home)[1].Name == "a" {
		index = 1
	}
	pod := &charge{
		demand: &demand{evaluator: pods{}, object: unscoped{}, used: resources("pods", "1")}, changes: []int{index},
		done: make(chan error, 1),
	}
	service := &charge{demand: &demand{evaluator: services{}, object: unscoped{}, used: resources("services", "1")},
		done: make(chan error, 1)}
	if still := l.round(home, []*charge{pod, service}); len(still) != 2 || len(pod.charged) != 0 || pod.verdict == nil {
		t.Errorf("got %d pending, %v charged, %v", len(still), pod.charged, pod.verdict)
	}
}
