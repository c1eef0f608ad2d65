package oracle

import (
	"encoding/json"
	"fmt"

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

// reencode returns the request as the release sends it to a webhook, nil if the release does not serve its kind.
func (r *Released) reencode(of *request) (*request, error) {
	var known released.Reencoded
	if err := r.ask(of.body, "reencode", &known); err != nil || !known.Served {
		return nil, err
	}
	review := new(admissionv1.AdmissionReview)
	if err := runtime.DecodeInto(reviewCodec(), of.body, review); err != nil {
		return nil, err
	}
	sent := *of
	if review.Request.Object.Raw != nil {
		review.Request.Object.Raw = known.Object
		sent.object = known.Object
	}
	if review.Request.OldObject.Raw != nil {
		review.Request.OldObject.Raw = known.OldObject
	}
	var err error
	sent.body, err = runtime.Encode(reviewCodec(), review)
	return &sent, err
}

func (r *Released) answer(request *request, phase admission.Phase) (Answer, error) {
	var got removedAnswer
	if err := r.ask(request.body, phase.String(), &got); err != nil {
		return Answer{}, fmt.Errorf("%w for %s", err, request.body)
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
