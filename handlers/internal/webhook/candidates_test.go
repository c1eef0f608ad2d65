package webhook

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// sourceOf returns a Source with webhooks that have these fields, besides the others that they must have.
func sourceOf(t *testing.T, fields ...string) *Source {
	t.Helper()
	needs := []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create")}
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace", Labels: map[string]string{"k": "x", "l": "y"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	var all []string
	for i, more := range fields {
		all = append(all, fmt.Sprintf(`{"name":"w%d.example.com","clientConfig":{"url":"https://localhost"},"sideEffects":"None",`+
			`"admissionReviewVersions":["v1"],%s}`, i, more))
	}
	document := fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration",`+
		`"metadata":{"name":"c"},"webhooks":[%s]}`, strings.Join(all, ","))
	s, err := NewSource("P", MutatingKind, admission.Setup{
		Cluster: state.View(needs...), Manifests: []admission.File{{Name: "a.json", Content: document}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const podRules = `"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]`

// generated returns the fields of a webhook.
func generated(random *rand.Rand) string {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	fields := []string{fmt.Sprintf(`"rules":[{"operations":[%q],"apiGroups":[%q],"apiVersions":[%q],"resources":[%q]}]`,
		pick("*", "CREATE", "UPDATE"), pick("", "", "*", "apps"), pick("v1", "v1", "v2", "*"),
		pick("pods", "pods", "*/*", "services", "namespaces"))}
	for _, selector := range []string{"namespaceSelector", "objectSelector"} {
		switch key := pick("k", "l", "m"); random.IntN(5) {
		case 0:
			fields = append(fields, fmt.Sprintf(`%q:{"matchLabels":{%q:%q}}`, selector, key, pick("x", "y")))
		case 1:
			fields = append(fields, fmt.Sprintf(`%q:{"matchExpressions":[{"key":%q,"operator":%q,"values":["x","z"]}]}`, selector, key,
				pick("In", "NotIn")))
		}
	}
	if random.IntN(3) == 0 {
		fields = append(fields, fmt.Sprintf(`"matchConditions":[{"name":"a","expression":%q}]`, pick("request.operation == 'CREATE'",
			"object.metadata.?labels.k.orValue('') == 'x'", "object.metadata.labels.l == 'y'")))
	}
	return strings.Join(fields, ",")
}

// A visit is what Matches returned for the webhook at a place.
type visit struct {
	place   int32
	matches bool
	result  string
}

// visits asks the candidates that all returns. Webhooks that match change the label k of the object if changes has the
// place. It returns the webhooks that match or fail.
func visits(t *testing.T, s *Source, body []byte, changes map[int32]string,
	all func(*Dispatch) iter.Seq[*policy.Candidate[*Webhook]]) (seen []visit) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	d, result := s.Begin(t.Context(), review)
	if d == nil {
		t.Fatalf("got %+v", result)
	}
	defer d.End()
	for c := range all(d) {
		v := visit{place: c.Place}
		matches, ended, err := d.Matches(c)
		switch v.matches = matches; {
		case ended != nil:
			v.result = ended.Denial.Message
		case err != nil:
			v.result = err.Error()
		}
		if !v.matches && v.result == "" {
			continue
		}
		seen = append(seen, v)
		if ended != nil {
			break
		}
		if label, ok := changes[c.Place]; ok && matches {
			review.Object.SetString(label, "metadata", "labels", "k")
		}
	}
	return seen
}

// eachAlone yields all webhooks, and evaluates the match conditions of each by themselves.
func eachAlone(d *Dispatch) iter.Seq[*policy.Candidate[*Webhook]] {
	return func(yield func(*policy.Candidate[*Webhook]) bool) {
		all := d.webhooks.Unselected()
		for i := range all {
			d.forget()
			if !yield(&all[i]) {
				return
			}
		}
	}
}

// TestCandidates expects from generated webhooks what asking each of them returns, also if some change the object.
func TestCandidates(t *testing.T) {
	random := seed.Rand(t)
	matched, changed := 0, 0
	for range seed.Cases(t, 60, 600) {
		fields := make([]string, 1+random.IntN(60))
		for i := range fields {
			fields[i] = generated(random)
		}
		s := sourceOf(t, fields...)
		for range 20 {
			changes := make(map[int32]string)
			for range random.IntN(3) {
				changes[int32(random.IntN(len(fields)))] = [...]string{"x", "y", "z"}[random.IntN(3)]
			}
			labels := [...]string{`{}`, `{"k":"x"}`, `{"k":"y","l":"y"}`, `{"m":"x"}`}[random.IntN(4)]
			object := fmt.Sprintf(`{"metadata":{"name":"n","labels":%s}}`, labels)
			resource := [...]string{"v1/pods", "v1/pods", "v1/services", "v1/namespaces", "apps/v1/deployments"}[random.IntN(5)]
			body := admissiontest.Body(codec.Create, resource, object)
			if random.IntN(2) == 0 {
				body = admissiontest.UpdateBody(resource, object, `{"metadata":{"name":"n","labels":{"l":"x"}}}`)
			}
			want, got := visits(t, s, body, changes, eachAlone), visits(t, s, body, changes, (*Dispatch).Candidates)
			if !slices.Equal(got, want) {
				t.Fatalf("%s\n%s\n%v: got\n%v, want\n%v", strings.Join(fields, "\n"), body, changes, got, want)
			}
			matched += len(got)
			if len(got) > 0 && len(changes) > 0 {
				changed++
			}
		}
	}
	if matched == 0 || changed == 0 {
		t.Errorf("%d webhooks matched, %d reviews were changed", matched, changed)
	}
}

// TestVisited counts the webhooks that a review of a Pod visits if most of 200 cannot match.
func TestVisited(t *testing.T) {
	f := func(want int, more string) {
		t.Helper()
		fields := []string{podRules}
		for i := range 200 {
			one := more
			if strings.Contains(more, "%d") {
				one = fmt.Sprintf(more, i)
			}
			fields = append(fields, one)
		}
		visited := 0
		s := sourceOf(t, fields...)
		visits(t, s, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n"}}`), nil,
			func(d *Dispatch) iter.Seq[*policy.Candidate[*Webhook]] {
				for range d.Candidates() {
					visited++
				}
				return d.Candidates()
			})
		if visited != want {
			t.Errorf("%s: visited %d webhooks, want %d", more, visited, want)
		}
	}
	f(1, strings.Replace(podRules, "pods", "services", 1))
	f(1, podRules+`,"namespaceSelector":{"matchLabels":{"k":"x%d"}}`)
	f(1, podRules+`,"objectSelector":{"matchExpressions":[{"key":"k","operator":"In","values":["x","y%d"]}]}`)
	f(1, `"rules":[]`)
	f(201, podRules)
	f(201, podRules+`,"namespaceSelector":{"matchLabels":{"k":"x"}}`)
	f(201, podRules+`,"objectSelector":{"matchExpressions":[{"key":"k","operator":"DoesNotExist"}]}`)
}

// TestReplacedCandidates replaces the webhooks while reviews read them. Each review sees one of the lists as a whole.
func TestReplacedCandidates(t *testing.T) {
	labelled := podRules + `,"namespaceSelector":{"matchLabels":{"k":"x"}}`
	few, many := sourceOf(t, podRules), sourceOf(t, slices.Repeat([]string{labelled}, 50)...)
	s := sourceOf(t, podRules)
	lists := map[int]bool{2: true, 51: true}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				s.use([...][]*Webhook{few.static, many.static}[i%2])
			}
		}
	})
	s.use(few.static)
	var readers sync.WaitGroup
	for reader := range 4 {
		readers.Go(func() {
			for i := range 200 {
				resource := [...]string{"v1/pods", "v1/services"}[i%2]
				body := admissiontest.Body(codec.Create, resource, fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, reader))
				seen := visits(t, s, body, map[int32]string{0: "z"}, (*Dispatch).Candidates)
				if got := len(seen); i%2 == 0 && !lists[got] || i%2 == 1 && got != 0 {
					t.Errorf("got %d webhooks", got)
				}
			}
		})
	}
	readers.Wait()
	close(done)
	running.Wait()
}
