package policies

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/released"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/seed"
)

var releasedCases = flag.Int("released", tally.Cases(60, 10_000), "generated cases for each feature of policies and each release")

// TestReleased compares fastadmit, which emulates an older release, with the plugin ValidatingAdmissionPolicy of this
// release. It runs with the releases that e2e/run has built.
func TestReleased(t *testing.T) {
	start := seed.Of(t)
	oracle.Releases(t, func(t *testing.T, command string, release admission.Version) {
		plugin, world := "ValidatingAdmissionPolicy", oracle.World{Authorizer: readOnly{}}
		process, err := oracle.StartReleased(command, released.Settings{Plugin: plugin}, world)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := process.Stop(); err != nil {
				t.Error(err)
			}
		}()
		upstream := releasedPlugin{process}
		for _, documents := range selecting() {
			upstream.use(t, documents)
			compare(t, documents, upstream, ours(t, documents, release), large(t, 1))
		}
		row := tally.Row{Plugin: plugin, Test: "generated in process, Kubernetes " + release.String()}
		for f, feature := range features {
			r := rand.New(rand.NewPCG(start, uint64(f)))
			done, denied := 0, 0
			for done < *releasedCases && !t.Failed() {
				d, n := generatedReleased(t, r, feature, release, upstream)
				done, denied = done+d, denied+n
			}
			row.Cases += done
			if t.Logf("%s: %d of %d denied", feature, denied, done); t.Failed() {
				row.Different = append(row.Different, feature)
				break
			}
		}
		if err := row.Write(); err != nil {
			t.Fatal(err)
		}
	})
}

// generatedReleased compares both sides with a policy on some requests.
func generatedReleased(t *testing.T, r *rand.Rand, feature string, release admission.Version,
	upstream releasedPlugin) (done, denied int) {
	t.Helper()
	g, err := newGenerator(r, feature)
	if err != nil {
		t.Fatal(err)
	}
	g.release = release
	documents, err := g.documents(1)
	if err != nil {
		t.Fatal(err)
	}
	documents.Bindings = documents.Bindings[:1] // Kubernetes evaluates several in no order
	upstream.use(t, documents)
	return g.compare(t, documents, upstream, 10)
}

// releasedPlugin is the plugin of an older release.
type releasedPlugin struct{ *oracle.Released }

// use makes a policy and its binding the only ones.
func (p releasedPlugin) use(t *testing.T, documents *Documents) {
	t.Helper()
	objects := []runtime.Object{&documents.Policies[0], &documents.Bindings[0]}
	for _, namespace := range namespaces() {
		objects = append(objects, namespace)
	}
	if err := p.Know(objects); err != nil {
		t.Fatal(err)
	}
}

// Sent implements kubernetes.
func (p releasedPlugin) Sent(body []byte) ([]byte, error) {
	review, err := p.Reencode(body)
	if review == nil {
		return nil, err
	}
	return json.Marshal(review)
}

// Answer implements kubernetes.
func (p releasedPlugin) Answer(request *admissionv1.AdmissionRequest) (*Answer, error) {
	review := &admissionv1.AdmissionReview{Request: request}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	got, err := p.Ask(body, admission.Validate)
	if err != nil {
		return nil, err
	}
	var given warnings
	for _, text := range got.Warnings {
		given.AddWarning("", text)
	}
	answer := &Answer{Denied: got.Status, Warnings: given.response.Warnings(), Annotations: map[string]string{}}
	if answer.Denied != nil {
		answer.Denied.TypeMeta = metav1.TypeMeta{}
	}
	for key, value := range got.Annotations {
		answer.Annotations[ownKey(key)] = value
	}
	return answer, nil
}
