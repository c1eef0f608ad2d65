package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource/status"
	"github.com/fastadmit/fastadmit/internal/wake"
)

// sourceOf returns a Source that does not run yet, with the policies p0, p1 and so on of an API server, and its other lists.
func sourceOf(a *apiServer, policies int) *Source[*admissionregistrationv1.ValidatingAdmissionPolicy,
	*admissionregistrationv1.ValidatingAdmissionPolicyBinding, string] {
	a.t.Helper()
	var all []string
	for i := range policies {
		all = append(all, customPolicy(fmt.Sprint("p", i), "", ""))
	}
	lists := map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`, policiesPath: strings.Join(all, ","),
		policiesPath[:len(policiesPath)-len("policies")] + "policybindings": binding("b", "p0", 2),
	}
	maps.Copy(lists, a.lists)
	a.lists = lists
	source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: a.follow()},
		func(*admissionregistrationv1.ValidatingAdmissionPolicy, bool) (string, error) { return "", nil })
	if err != nil {
		a.t.Fatal(err)
	}
	return source
}

// TestUnanswered counts the policies whose status is written if the API server closes the connections, and
// if it answers with a conflict.
func TestUnanswered(t *testing.T) {
	f := func(policies, want int, answers func(name string) bool) {
		t.Helper()
		var mu sync.Mutex
		asked := make(map[string]bool)
		a := &apiServer{t: t, put: func(w http.ResponseWriter, r *http.Request) {
			name := strings.TrimSuffix(r.URL.Path[len(policiesPath)+1:], "/status")
			mu.Lock()
			asked[name] = true
			mu.Unlock()
			if !answers(name) {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`))
		}}
		source := sourceOf(a, policies)
		source.refresh(t.Context())
		source.resources.writeStatus(t.Context())
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != want {
			t.Errorf("%d policies: the statuses of %v were written, want %d", policies, asked, want)
		}
	}
	a := &apiServer{t: t}
	a.aborts.Store(true) // and writes statuses
	var asked atomic.Int32
	a.put = func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(w, r.Body)
	}
	source := sourceOf(a, 9)
	source.refresh(t.Context())
	if source.resources.writeStatus(t.Context()); asked.Load() != unansweredMax {
		t.Errorf("without schemas: %d statuses were written, want %d", asked.Load(), unansweredMax)
	}

	never := func(string) bool { return false }
	f(unansweredMax-1, unansweredMax-1, never)
	f(unansweredMax, unansweredMax, never)
	f(unansweredMax+1, unansweredMax, never)
	f(9, 9, func(string) bool { return true })
	f(9, 9, func(name string) bool { return name == "p2" || name == "p5" })
}

// TestUnansweredBetween has policies for which the API server does not answer, and between them policies
// whose status is already written.
func TestUnansweredBetween(t *testing.T) {
	var asked atomic.Int32
	var silent atomic.Bool
	a := &apiServer{t: t, put: func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if silent.Load() {
			panic(http.ErrAbortHandler)
		}
		if name := strings.TrimSuffix(r.URL.Path, "/status"); strings.HasSuffix(name, "1") || strings.HasSuffix(name, "3") {
			_, _ = io.Copy(w, r.Body)
			return
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`))
	}}
	source := sourceOf(a, 9)
	source.refresh(t.Context())
	if source.resources.writeStatus(t.Context()); asked.Load() != 9 {
		t.Fatalf("%d statuses were written, want 9", asked.Load())
	}
	asked.Store(0)
	silent.Store(true)
	if settled := source.resources.writeStatus(t.Context()); asked.Load() != unansweredMax || !settled {
		t.Errorf("%d statuses were written, settled %v, want %d of policies without parameters", asked.Load(), settled, unansweredMax)
	}
}

// TestDueAgain checks that a status is written again after another replica has replaced it.
func TestDueAgain(t *testing.T) {
	c := newReplicated(t)
	source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: c.view},
		func(*admissionregistrationv1.ValidatingAdmissionPolicy, bool) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	f := func(policy string, want bool) {
		t.Helper()
		c.put(policy)
		source.refresh(t.Context())
		r := source.resources
		all := reports{known: true, first: true, live: []*heard{{host: "h", revisions: map[string]string{"p": r.compiled["p"].revision}}}}
		change, due, _ := r.due("p", all)
		if due != want {
			t.Errorf("%s: got %v", policy, due)
		}
		if due {
			if err := change.Write(t.Context(), r.policies); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.put(binding("b", "p", 1))
	plain := customPolicy("p", "", "")
	f(plain, true)
	f(plain, false)
	f(strings.TrimSuffix(plain, "}")+`,"status":{"conditions":[{"type":"Enforced","status":"False","reason":"Waiting",`+
		`"observedGeneration":3}]}}`, true)
}

// TestDoubts has a status that differs in one field from the reports of the replicas, then does not, and
// then does again.
func TestDoubts(t *testing.T) {
	same := metav1.Condition{Type: conditionEnforced, Status: metav1.ConditionFalse, Reason: "Waiting",
		Message: "1 of 1 replicas do not enforce it: h", ObservedGeneration: 1}
	object, err := cluster.NewJSON([]byte(`{"metadata":{"name":"p","generation":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := &compiledPolicy[string]{object: object, statusOf: object, bound: true, revision: "x"}
	all := reports{known: true, live: []*heard{{host: "h", revisions: map[string]string{"p": "y"}}}}
	start := time.Now()
	f := func(stored metav1.Condition, after time.Duration, want metav1.Condition, wantChanged bool) {
		t.Helper()
		c.status = &status.Status{Conditions: []metav1.Condition{stored}}
		if got, changed := c.enforcedCondition(all, start.Add(after)); got != want || changed != wantChanged {
			t.Errorf("%v after %v: got %v, %v, want %v, %v", stored, after, got, changed, want, wantChanged)
		}
	}
	for _, change := range []func(*metav1.Condition){
		func(c *metav1.Condition) { c.Status = metav1.ConditionTrue },
		func(c *metav1.Condition) { c.Reason = "NoBindings" },
		func(c *metav1.Condition) { c.Message = "2 of 2 replicas do not enforce it: h, i" },
	} {
		other := same
		change(&other)
		f(same, 0, same, false)
		f(other, 1, other, false)
		f(other, retryPause, other, false)
		f(other, retryPause+1, same, true)
		f(same, retryPause+2, same, false)
		f(other, retryPause+3, other, false) // the pause begins again
	}
	c.doubted = time.Time{}
	for _, before := range []int64{0, 2} { // of another generation
		other := same
		other.Status, other.ObservedGeneration = metav1.ConditionTrue, before
		f(other, 0, same, false)
	}
	all.known = false
	f(same, 0, same, false)
	other := same
	other.ObservedGeneration = 2
	f(other, 0, metav1.Condition{
		Type: conditionEnforced, Status: metav1.ConditionUnknown, Reason: "NotReported",
		Message: "no replica has reported yet which policies it enforces", ObservedGeneration: 1,
	}, false)
	all.known, c.bound = true, false
	unbound := metav1.Condition{Type: conditionEnforced, Status: metav1.ConditionFalse, Reason: "NoBindings",
		Message: "no binding names it", ObservedGeneration: 1}
	f(unbound, 0, unbound, false)
	f(other, 0, unbound, false)
	all.live[0].revisions["p"], c.bound = "x", true
	enforced := metav1.Condition{Type: conditionEnforced, Status: metav1.ConditionTrue, Reason: "AllReplicas",
		Message: "all replicas enforce it", ObservedGeneration: 1}
	f(same, 0, enforced, true) // at once
	f(enforced, 0, enforced, false)
}

// TestEnforcedHere checks that a replica reports the policies that it evaluates, and no policies that
// fail.
func TestEnforcedHere(t *testing.T) {
	c := newReplicated(t)
	source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: c.view},
		func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ bool) (string, error) {
			if p.Name == "uncompiled" {
				return "", errors.New("no such variable")
			}
			return "", nil
		})
	if err != nil {
		t.Fatal(err)
	}
	c.put(customPolicy("unbound", "", ""), customPolicy("invalid", "", `"failurePolicy":"Sometimes",`),
		customPolicy("unwatched", "ConfigMap", ""),
		strings.Replace(customPolicy("unreadable", "", ""), `[{"expression":"true"}]`, "1", 1),
		strings.Replace(binding("wrong", "partly", 1), `"Deny"`, `"Forbid"`, 1))
	for _, name := range []string{"good", "better", "partly", "uncompiled"} {
		c.put(customPolicy(name, "", ""))
	}
	for _, name := range []string{"good", "better", "partly", "uncompiled", "invalid", "unwatched", "unreadable"} {
		c.put(binding(name, name, 1))
	}
	source.refresh(t.Context())
	var got []string
	for _, p := range source.resources.enforced() {
		got = append(got, fmt.Sprint(p.Name, " ", p.ObservedGeneration, " ", p.Revision == source.resources.compiled[p.Name].revision))
	}
	if want := "better 3 true, good 3 true"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestRun checks when a replica reports: after the first change, once for several changes within a
// second, after renewPause, and after retryPause if a report failed.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplicated(t)
		var enforced atomic.Pointer[[]reportedPolicy]
		enforced.Store(new([]reportedPolicy))
		r := newReplicas(cluster.PolicyReplicas.In(c.view), ValidatingKind.Name, func() []reportedPolicy { return *enforced.Load() })
		r.host = "a"
		ctx, cancel := context.WithCancel(t.Context())
		refreshed := wake.NewSignal()
		go r.run(ctx, refreshed)
		f := func(pause time.Duration, want string) (version string) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			if got := c.replicas(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			for _, object := range complete(r.objects.List("")) {
				version = object.GetResourceVersion()
			}
			return version
		}
		change := func() {
			now := *enforced.Load()
			now = append(slices.Clone(now), reportedPolicy{Name: fmt.Sprint("p", len(now))})
			enforced.Store(&now)
			refreshed.Send()
		}
		f(time.Hour, "")
		change()
		f(1, "a 1")
		for range 3 {
			change()
			f(reportPause/4, "a 1")
		}
		first := f(reportPause/4, "a 4")
		if f(renewPause, "a 4") != first {
			t.Error("the report was renewed early, want reportPause and renewPause")
		}
		if f(reportPause, "a 4") == first {
			t.Error("the report was not renewed")
		}
		c.put(fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":%q},`+
			`"status":{"plugin":"ValidatingAdmissionPolicy","host":"a"}}`, r.ownName()))
		f(renewPause+reportPause, "a 0") // it cannot be renewed, because somebody changed it
		f(retryPause+reportPause, "a 4")
		cancel()
		f(1, "")
		if got, err := r.object(&metav1.ObjectMeta{Name: "n"}, nil).MarshalJSON(); err != nil ||
			string(got) != `{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":"n"}}` {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// TestChangesWhileWritesHang has policies follow the cluster while the API server does not
// answer writes.
func TestChangesWhileWritesHang(t *testing.T) {
	a := &apiServer{t: t, events: make(chan string), put: func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not see that the client is gone
		<-r.Context().Done()
	}}
	source := sourceOf(a, 9)
	go source.Handler().Run(t.Context(), func() {})
	known := func() string {
		if all := source.all.Load(); all != nil {
			return fmt.Sprint(len(all.all))
		}
		return ""
	}
	eventually(t, known, "9")
	for i := range 3 { // while earlier statuses are being written
		a.events <- fmt.Sprintf(`{"type":"ADDED","object":%s}`, customPolicy(fmt.Sprint("q", i), "", ""))
		eventually(t, known, fmt.Sprint(10+i))
	}
}
