package policies

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

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
		begin := func() (*oracle.Released, error) {
			return oracle.StartReleased(command, released.Settings{Plugin: plugin}, world)
		}
		process, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		upstream := &releasedPlugin{t: t, start: begin, Released: process}
		defer func() {
			if err := upstream.Stop(); err != nil {
				t.Error(err)
			}
		}()
		for _, documents := range selecting() {
			upstream.use(t, documents)
			compare(t, documents, upstream, ours(t, documents, release), large(t, 1))
		}
		row := tally.Row{Plugin: plugin, Test: "generated in process, Kubernetes " + release.String()}
		for f, feature := range features {
			equal := t.Run(feature, func(t *testing.T) {
				upstream.t = t
				r := rand.New(rand.NewPCG(start, uint64(f)))
				var all outcomes
				for all.done < *releasedCases && !t.Failed() {
					generatedReleased(t, r, feature, release, upstream, &all)
				}
				row.Cases += all.done
				t.Logf("%d of %d denied, %d ended the process", all.denied, all.done, upstream.ended)
			})
			if !equal {
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
	upstream *releasedPlugin, all *outcomes) {
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
	g.compare(t, documents, upstream, 10, all)
}

// releasedPlugin is the plugin of an older release.
type releasedPlugin struct {
	*oracle.Released

	t         *testing.T
	start     func() (*oracle.Released, error)
	documents *Documents // that it uses
	ended     int        // processes
}

// endedMax is how many processes of a release may end, of all of its cases.
const endedMax = 20

// use makes a policy and its binding the only ones.
func (p *releasedPlugin) use(t *testing.T, documents *Documents) {
	t.Helper()
	p.documents = documents
	objects := []runtime.Object{&documents.Policies[0], &documents.Bindings[0]}
	for _, namespace := range namespaces() {
		objects = append(objects, namespace)
	}
	if err := p.Know(objects); err != nil {
		t.Fatal(err)
	}
}

// restart starts another process after one has ended: until 1.33, a policy can make kube-apiserver overflow its stack.
func (p *releasedPlugin) restart() (err error) {
	text, _ := yaml.Marshal(p.documents.Policies[0].Spec)
	p.t.Logf("ended by\n%s", text)
	if p.ended++; p.ended > endedMax {
		return fmt.Errorf("got %d ended processes, want at most %d", p.ended, endedMax)
	}
	_ = p.Stop() // it has ended, with an error
	if p.Released, err = p.start(); err == nil {
		p.use(p.t, p.documents)
	}
	return err
}

// Sent implements kubernetes.
func (p *releasedPlugin) Sent(body []byte) ([]byte, error) {
	review, err := p.Reencode(body)
	if review == nil {
		return nil, err
	}
	return json.Marshal(review)
}

// Answer implements kubernetes.
func (p *releasedPlugin) Answer(request *admissionv1.AdmissionRequest) (*Answer, error) {
	review := &admissionv1.AdmissionReview{Request: request}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	got, err := p.Ask(body, admission.Validate)
	if errors.Is(err, oracle.ErrEnded) {
		return nil, p.restart()
	}
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
