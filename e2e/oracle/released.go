package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/e2e/released"
)

// Released is a plugin of an older release of Kubernetes: a command of ../released.
type Released struct{ process }

// StartReleased starts the command in a world. It sets the authorizer of the settings.
func StartReleased(command string, settings released.Settings, world World) (*Released, error) {
	if world.Authorizer != nil {
		settings.Authorizer = theStandIn().server(world.Authorizer)
	}
	argument, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	r := new(Released)
	return r, r.start(world, command, string(argument))
}

// Releases calls f in a subtest for each release whose command e2e/run has built.
func Releases(t *testing.T, f func(t *testing.T, command string, release admission.Version)) {
	t.Helper()
	commands, err := filepath.Glob("../.cache/released-v*")
	if err != nil || len(commands) == 0 {
		t.Fatalf("got no commands, %v; make e2e builds them", err)
	}
	for _, command := range commands {
		_, name, _ := strings.Cut(command, "released-v")
		release, isKnown, err := admission.ParseVersion(name)
		if err != nil || !isKnown {
			t.Fatalf("%s: got release %s, %v", command, release, err)
		}
		t.Run(name, func(t *testing.T) { f(t, command, release) })
	}
}

// Reencode returns the review as the release sends it to a webhook, nil if the release does not serve its kind.
func (r *Released) Reencode(body []byte) (*admissionv1.AdmissionReview, error) {
	var known released.Reencoded
	if err := r.ask(body, "reencode", &known); err != nil || !known.Served {
		return nil, err
	}
	review := new(admissionv1.AdmissionReview)
	if err := runtime.DecodeInto(reviewCodec(), body, review); err != nil {
		return nil, err
	}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	if review.Request.Object.Raw != nil {
		review.Request.Object.Raw = known.Object
	}
	if review.Request.OldObject.Raw != nil {
		review.Request.OldObject.Raw = known.OldObject
	}
	return review, nil
}

// reencode does the same for a request of a case.
func (r *Released) reencode(of *request) (*request, error) {
	review, err := r.Reencode(of.body)
	if review == nil {
		return nil, err
	}
	sent := *of
	if review.Request.Object.Raw != nil {
		sent.object = review.Request.Object.Raw
	}
	sent.body, err = runtime.Encode(reviewCodec(), review)
	return &sent, err
}

// ErrPanicked says that the plugin of the release panicked.
var ErrPanicked = errors.New("the plugin panicked")

// Ask sends a review in a phase. After it, objects are those of another cluster.
func (r *Released) Ask(body []byte, phase admission.Phase) (*ReleasedAnswer, error) {
	got := new(ReleasedAnswer)
	if err := r.ask(body, phase.String(), got); err != nil {
		return nil, fmt.Errorf("%w for %s", err, body)
	}
	if got.Panicked != "" {
		return nil, fmt.Errorf("%w: %s, for %s", ErrPanicked, got.Panicked, body)
	}
	return got, nil
}

func (r *Released) answer(request *request, phase admission.Phase) (Answer, error) {
	got, err := r.Ask(request.body, phase)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Status: got.Status}
	var warnings codec.Response
	for _, text := range got.Warnings {
		warnings.Warn(text)
	}
	answer.Warnings = warnings.Warnings()
	for key, value := range got.Annotations {
		if key = annotationKey(key); key != "" {
			answer.annotate(key, value)
		}
	}
	if phase == admission.Mutate && got.Status == nil {
		answer.Object = got.After
	}
	return answer, nil
}
