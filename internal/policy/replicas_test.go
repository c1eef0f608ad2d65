package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource/status"
)

// A replicated is a cluster in which several replicas follow the same custom resources.
type replicated struct {
	t      *testing.T
	state  *cluster.State
	view   *cluster.View
	putter *cluster.Putter
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	needs := append(ValidatingKind.NeedsOf([]byte(customConfig)), cluster.Namespaces.Watched(),
		cluster.SubjectAccessReviews.Called("create"))
	state, err := cluster.New(cluster.Options{Embedded: true, Kinds: cluster.KindsOf(needs...)})
	if err == nil {
		err = state.Follow(t.Context(), needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &replicated{t, state, state.View(needs...), state.NewPutter()}
}

// start starts a replica that enforces all policies except those of this name. stop stops it.
func (c *replicated) start(host, but string) (stop func()) {
	c.t.Helper()
	source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: c.view},
		func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ bool) (string, error) {
			if p.Name == but {
				return "", fmt.Errorf("%s cannot compile it", host)
			}
			return "", nil
		})
	if err != nil {
		c.t.Fatal(err)
	}
	source.resources.replicas.host = host
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		source.Handler().Run(ctx, func() {})
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (c *replicated) put(objects ...string) {
	c.t.Helper()
	for _, object := range objects {
		if put, err := c.putter.Put([]byte(object)); err != nil || !put {
			c.t.Fatal(put, err, object)
		}
	}
}

// policy returns a policy of a generation, with the status that the cluster has.
func (c *replicated) policy(name string, generation int) string {
	text := strings.Replace(customPolicy(name, "", ""), `"generation":3`, fmt.Sprintf(`"generation":%d`, generation), 1)
	if has, ok := cluster.ValidatingAdmissionPolicies.In(c.view).Cached("", name); ok {
		now, err := json.Marshal(status.Of(has))
		if err != nil {
			c.t.Fatal(err)
		}
		text = strings.TrimSuffix(text, "}") + `,"status":` + string(now) + "}"
	}
	return text
}

func binding(name, policy string, generation int) string {
	return fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%q,`+
		`"uid":%q,"generation":%d},`+
		`"spec":{"policyName":%q,"validationActions":["Deny"]}}`, name, name, generation, policy)
}

// says returns the condition Enforced of a policy.
func (c *replicated) says(name string) string {
	c.t.Helper()
	has, ok := cluster.ValidatingAdmissionPolicies.In(c.view).Cached("", name)
	if !ok {
		return "no policy"
	}
	condition := status.Of(has).Condition(conditionEnforced)
	if condition == nil {
		return "nothing"
	}
	return fmt.Sprintf("%d %s %s: %s", condition.ObservedGeneration, condition.Status, condition.Reason, condition.Message)
}

// after checks the condition of the policy p after a pause.
func (c *replicated) after(pause time.Duration, want string) {
	c.t.Helper()
	time.Sleep(pause)
	synctest.Wait()
	if got := c.says("p"); got != want {
		c.t.Errorf("after %v: got  %s\nwant %s", pause, got, want)
	}
}

// replicas returns the hosts of the reports, and how many policies each has.
func (c *replicated) replicas() string {
	var all []string
	for _, object := range complete(cluster.PolicyReplicas.In(c.view).List("")) {
		h := newHeard(object, time.Now())
		all = append(all, fmt.Sprintf("%s %d", h.host, len(h.revisions)))
	}
	return strings.Join(all, ", ")
}

// soon is the time after which all replicas have seen a change, reported it, and written the status.
const soon = 5 * time.Second

// TestEnforced checks the status of a policy while replicas start and end, and while policies and
// bindings change.
func TestEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplicated(t)
		stopA, stopB := c.start("a", ""), c.start("b", "")
		c.put(c.policy("p", 1))
		c.after(soon, "1 False NoBindings: no binding names it")
		if got := c.replicas(); got != "a 0, b 0" {
			t.Errorf("got %s, want that nobody enforces a policy without bindings", got)
		}
		c.put(binding("b", "p", 1))
		c.after(soon, "1 True AllReplicas: all replicas enforce it")
		c.put(c.policy("p", 2))
		c.after(soon, "2 True AllReplicas: all replicas enforce it")

		// A replica that cannot compile the policy, such as one of an older version.
		stopOld := c.start("old", "p")
		c.after(soon, "2 True AllReplicas: all replicas enforce it")
		c.after(2*retryPause, "2 False Waiting: 1 of 3 replicas do not enforce it: old")
		c.put(c.policy("p", 3))
		c.after(2*retryPause, "3 False Waiting: 1 of 3 replicas do not enforce it: old")
		if got := c.replicas(); got != "a 1, b 1, old 0" {
			t.Errorf("got %s", got)
		}
		stopOld()
		c.after(soon, "3 True AllReplicas: all replicas enforce it")

		// The report of a replica that was killed.
		c.put(`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":"killed"},` +
			`"status":{"plugin":"ValidatingAdmissionPolicy","host":"killed"}}`)
		c.put(c.policy("p", 4))
		c.after(2*retryPause, "4 False Waiting: 1 of 3 replicas do not enforce it: killed")
		c.after(goneAfter-2*retryPause-soon, "4 False Waiting: 1 of 3 replicas do not enforce it: killed")
		c.after(renewPause+2*soon, "4 True AllReplicas: all replicas enforce it")
		if got := c.replicas(); got != "a 1, b 1" {
			t.Errorf("got %s, want no report of what was killed", got)
		}

		// The first replica ends.
		stopA()
		if got := c.replicas(); got != "b 1" {
			t.Errorf("got %s, want no report of what ended", got)
		}
		c.put(binding("b2", "p", 1))
		c.after(soon, "4 True AllReplicas: all replicas enforce it")
		c.put(c.policy("p", 5))
		c.after(soon, "5 True AllReplicas: all replicas enforce it")

		// A policy that no replica can read.
		c.put(strings.Replace(c.policy("p", 6), `"validations":[{"expression":"true"}]`, `"validations":1`, 1))
		c.after(soon, "6 False Waiting: 1 of 1 replicas do not enforce it: b")
		stopB()
	})
}

// TestRulesChange checks that changes of rules are signalled, and other changes are not.
func TestRulesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplicated(t)
		source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: c.view},
			func(*admissionregistrationv1.ValidatingAdmissionPolicy, bool) (string, error) { return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		changes := 0
		go source.Handler().Run(t.Context(), func() { changes++ })
		f := func(what string, want int) {
			t.Helper()
			time.Sleep(soon)
			synctest.Wait()
			if changes != want {
				t.Errorf("%s: the rules changed %d times, want %d", what, changes, want)
			}
		}
		f("no policies", 1)
		c.put(c.policy("p", 1))
		f("a policy without bindings", 1)
		c.put(binding("b", "p", 1))
		f("a binding", 2)
		c.put(binding("b2", "p", 1), c.policy("p", 2))
		f("another binding", 2)
		time.Sleep(2 * retryPause)
		f("nothing", 2)
		c.put(strings.ReplaceAll(c.policy("p", 3), `"pods"`, `"services"`))
		f("another resource", 3)
		c.put(binding("b", "q", 2), binding("b2", "q", 2))
		f("bindings of another policy", 4)
	})
}

// TestReportWrites counts the writes of ten replicas with many policies.
func TestReportWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, policies = 10, 30
		c := newReplicated(t)
		reports, statuses := cluster.PolicyReplicas.In(c.view), cluster.ValidatingAdmissionPolicies.In(c.view)
		var stops []func()
		for i := range many {
			stops = append(stops, c.start(fmt.Sprint("r", i), ""))
		}
		time.Sleep(soon)
		version := func() (sum int) { // of the objects that were written last
			for _, objects := range [][]*cluster.JSON{complete(reports.List("")), complete(statuses.List(""))} {
				newest := 0
				for _, o := range objects {
					n := 0
					_, _ = fmt.Sscan(o.GetResourceVersion(), &n)
					newest = max(newest, n)
				}
				sum += newest
			}
			return sum
		}
		writes := func(what string, atMost int, do func()) {
			t.Helper()
			synctest.Wait()
			before := version()
			do()
			synctest.Wait()
			if got := version() - before; got > atMost {
				t.Errorf("%s: got %d writes, want at most %d", what, got, atMost)
			}
		}
		for i := range policies {
			c.put(binding(fmt.Sprint("p", i), fmt.Sprint("p", i), 1))
		}
		// Each policy is written once by the test, and its status twice. Each replica reports once
		// per second while policies are applied.
		writes("applying", 3*policies+2*many, func() {
			for i := range policies {
				c.put(c.policy(fmt.Sprint("p", i), 1))
			}
			time.Sleep(2 * soon)
		})
		for i := range policies {
			if got := c.says(fmt.Sprint("p", i)); got != "1 True AllReplicas: all replicas enforce it" {
				t.Fatalf("policy %d: got %s", i, got)
			}
		}
		writes("three minutes", 3*many, func() { time.Sleep(3 * time.Minute) })
		// A new pod creates an object and writes its status.
		writes("a rollout", 2*many+many, func() {
			for i := range many {
				stops[i]()
				stops[i] = c.start(fmt.Sprint("s", i), "")
				time.Sleep(soon)
			}
		})
		for _, stop := range stops {
			stop()
		}
	})
}

// TestReportAgain has users delete the report of a replica, and label it.
func TestReportAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplicated(t)
		objects := cluster.PolicyReplicas.In(c.view)
		defer c.start("a", "")()
		c.put(c.policy("p", 1), binding("b", "p", 1))
		c.after(soon, "1 True AllReplicas: all replicas enforce it")
		first := complete(objects.List(""))[0].GetName()
		if err := objects.Delete(t.Context(), "", first); err != nil {
			t.Fatal(err)
		}
		c.put(c.policy("p", 2))
		c.after(2*retryPause, "2 True AllReplicas: all replicas enforce it")
		all := complete(objects.List(""))
		if len(all) != 1 || all[0].GetName() == first || c.replicas() != "a 1" {
			t.Fatalf("got %s, want a report of another name than %s", c.replicas(), first)
		}
		version := all[0].GetResourceVersion()
		c.put(fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":%q,"labels":{"a":"b"}},`+
			`"status":{"plugin":"ValidatingAdmissionPolicy","host":"a"}}`, all[0].GetName()))
		if labelled := complete(objects.List("")); labelled[0].GetResourceVersion() == version {
			t.Fatal("the report has the version of before")
		}
		c.put(c.policy("p", 3))
		c.after(2*retryPause, "3 True AllReplicas: all replicas enforce it")
		if again := complete(objects.List("")); len(again) != 1 || again[0].GetName() != all[0].GetName() {
			t.Errorf("got %s, want the report of before", c.replicas())
		}
	})
}

// TestHost has host names that are valid at the beginning of names of reports, and others.
func TestHost(t *testing.T) {
	const longest = 253 - len("-12345") // the limit for the name of an object
	f := func(name string, err error, want string) {
		t.Helper()
		if got := hostOf(name, err); got != want {
			t.Errorf("%q, %v: got %q, want %q", name, err, got, want)
		}
	}
	f("fastadmit-7c9-x2", nil, "fastadmit-7c9-x2")
	f("Node-1.Example.com", nil, "node-1.example.com")
	f("", nil, defaultHost)
	f("a_b", nil, defaultHost)
	f("a", errors.New("no name"), defaultHost)
	f(strings.Repeat("a", longest-1), nil, strings.Repeat("a", longest-1))
	f(strings.Repeat("a", longest), nil, strings.Repeat("a", longest))
	f(strings.Repeat("a", longest+1), nil, defaultHost)
}

// TestReports reads reports at the limits.
func TestReports(t *testing.T) {
	f := func(want string, revisions ...string) {
		t.Helper()
		var all reports
		for i, revision := range revisions {
			all.live = append(all.live, &heard{host: fmt.Sprint("h", i), revisions: map[string]string{"p": revision}})
		}
		if _, _, got := all.enforced("p", "x"); got != want {
			t.Errorf("%v: got %q, want %q", revisions, got, want)
		}
	}
	f("all replicas enforce it", "x", "x")
	f("1 of 2 replicas do not enforce it: h0", "y", "x")
	f("3 of 4 replicas do not enforce it: h0, h1, h3", "", "y", "x", "z")
	f("4 of 4 replicas do not enforce it: h0, h1, h2 and 1 more", "", "y", "", "z")
	unsorted := reports{live: []*heard{{host: "z"}, {host: "b"}, {host: "a"}}}
	if _, _, got := unsorted.enforced("p", "x"); got != "3 of 3 replicas do not enforce it: a, b, z" {
		t.Errorf("got %q, want the hosts sorted", got)
	}

	c := newReplicated(t)
	c.put(`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":"a"},`+
		`"status":{"plugin":"ValidatingAdmissionPolicy","host":"a"}}`,
		`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":"b"},`+
			`"status":{"plugin":"MutatingAdmissionPolicy","host":"b"}}`,
		`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":"c"},"status":[]}`)
	r := newReplicas(cluster.PolicyReplicas.In(c.view), ValidatingKind.Name, nil)
	start := time.Now()
	g := func(after time.Duration, live, gone int) {
		t.Helper()
		all := r.read(start.Add(after))
		if names := r.gone(start.Add(after)); len(all.live) != live || len(names) != gone || all.known || !all.first {
			t.Errorf("after %v: got %+v, %v, want %d and %d", after, all, names, live, gone)
		}
	}
	g(0, 1, 0)
	g(goneAfter-1, 1, 0)
	g(goneAfter, 0, 3)
	c.put(`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":"a"},` +
		`"status":{"plugin":"ValidatingAdmissionPolicy","host":"a"}}`)
	g(goneAfter, 1, 2) // it was renewed
	r.setName("a")
	if all := r.read(start); !all.known || !all.first {
		t.Errorf("got %+v, want the own report", all)
	}
	c.put(`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyReplica","metadata":{"name":"d"},` +
		`"status":{"plugin":"ValidatingAdmissionPolicy","host":"d"}}`)
	r.setName("d")
	if all := r.read(start); !all.known || all.first {
		t.Errorf("got %+v, want the own report not to be the first", all)
	}
	r.setName("a")
	if names := r.gone(start.Add(3 * goneAfter)); len(names) != 3 {
		t.Errorf("got %v, want all but the own report", names)
	}
}

// TestRevision checks that each change of a policy or its bindings gives it another revision.
func TestRevision(t *testing.T) {
	seen := make(map[string]string)
	f := func(what, uid string, generation int, bindings ...*Binding) {
		t.Helper()
		object, err := cluster.NewJSON(fmt.Appendf(nil, `{"metadata":{"name":"p","uid":%q,"generation":%d}}`, uid, generation))
		if err != nil {
			t.Fatal(err)
		}
		revision := revisionOf(object, bindings)
		if revision != revisionOf(object, bindings) || seen[revision] != "" {
			t.Errorf("%s: got %s, which %s has too", what, revision, seen[revision])
		}
		seen[revision] = what
	}
	f("no binding", "u", 1)
	f("another generation", "u", 2)
	f("another policy", "v", 1)
	f("a binding", "u", 1, &Binding{Name: "b", revision: "1"})
	f("a changed binding", "u", 1, &Binding{Name: "b", revision: "2"})
	f("another binding", "u", 1, &Binding{Name: "c", revision: "1"})
	f("two bindings", "u", 1, &Binding{Name: "b", revision: "1"}, &Binding{Name: "c", revision: "1"})
}

// TestDoubted checks that the status says that a policy is no longer enforced only after retryPause.
func TestDoubted(t *testing.T) {
	object, err := cluster.NewJSON([]byte(`{"metadata":{"name":"p","generation":1},"status":{"conditions":[` +
		`{"type":"Enforced","status":"True","reason":"AllReplicas","message":"all replicas enforce it","observedGeneration":1}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := &compiledPolicy[string]{object: object, bound: true, revision: "x"}
	start := time.Now()
	f := func(after time.Duration, revision, want string, wantChanged bool) {
		t.Helper()
		all := reports{known: true, live: []*heard{{host: "h", revisions: map[string]string{"p": revision}}}}
		if got, changed := c.enforcedCondition(all, start.Add(after)); string(got.Status) != want || changed != wantChanged {
			t.Errorf("after %v: got %+v, %v, want %s, %v", after, got, changed, want, wantChanged)
		}
	}
	f(0, "x", "True", false)
	f(1, "y", "True", false)
	f(retryPause, "y", "True", false)
	f(retryPause+1, "y", "False", true)
	f(retryPause+2, "x", "True", false)
	f(retryPause+3, "y", "True", false) // the pause begins again
	f(2*retryPause+3, "y", "False", true)

	g := func(status string, known bool, want string, wantChanged bool) {
		t.Helper()
		object, err := cluster.NewJSON([]byte(`{"metadata":{"name":"p","generation":1},"status":{"conditions":[` + status + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		c := &compiledPolicy[string]{object: object, bound: true, revision: "x"}
		all := reports{known: known, live: []*heard{{host: "h", revisions: map[string]string{"p": "y"}}}}
		if got, changed := c.enforcedCondition(all, start); string(got.Status)+" "+got.Reason != want || changed != wantChanged {
			t.Errorf("%s, known %v: got %+v, %v, want %s, %v", status, known, got, changed, want, wantChanged)
		}
	}
	g("", false, "Unknown NotReported", false)
	g("", true, "False Waiting", false)
	g(`{"type":"Enforced","status":"Unknown","reason":"NotReported","observedGeneration":1}`, true, "False Waiting", true)
	g(`{"type":"Enforced","status":"True","reason":"AllReplicas","observedGeneration":1}`, false, "True AllReplicas", false)
}

// TestTurn checks that only the first replica writes a status at once. The others wait first.
func TestTurn(t *testing.T) {
	now := time.Now()
	f := func(first bool, after time.Duration, want bool) {
		t.Helper()
		c := &compiledPolicy[string]{dueSince: now}
		if got := isTurn(&c.dueSince, true, reports{first: first}, now.Add(after)); got != want {
			t.Errorf("first %v, after %v: got %v", first, after, got)
		}
		c = new(compiledPolicy[string]) // due just now
		if got := isTurn(&c.dueSince, true, reports{first: first}, now); got != first || !c.dueSince.Equal(now) {
			t.Errorf("first %v: got %v, since %v", first, got, c.dueSince)
		}
	}
	f(true, 0, true)
	f(false, 0, false)
	f(false, retryPause-1, false)
	f(false, retryPause, true)
}

// complete returns the objects of a list.
func complete(objects []*cluster.JSON, err error) []*cluster.JSON {
	if err != nil {
		panic(err)
	}
	return objects
}
