// Package imagepolicywebhook is the admission plugin ImagePolicyWebhook.
//
// It asks a server of the operator, the backend, whether the images of a pod may run.
// Use it if you have an image scanner or another server that answers an ImageReview of
// imagepolicy.k8s.io/v1alpha1.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/imagepolicy.
package imagepolicywebhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	name = "ImagePolicyWebhook"

	// annotationPart is a part of the keys of annotations that are sent to the backend.
	annotationPart = ".image-policy.k8s.io/"

	// failedOpen is the audit annotation of a pod that is allowed because the backend
	// did not answer.
	failedOpen = "failed-open"

	ephemeralContainers = "ephemeralcontainers"
)

var errRejected = errors.New("one or more images rejected by webhook backend")

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	rule := admission.CreateUpdate("pods")
	rule.Resources = append(rule.Resources, "pods/"+ephemeralContainers)
	return admission.Plugin{
		Name:           name,
		Summary:        "asks a server of yours whether the images of a pod may run",
		Rules:          []admission.Rule{rule},
		Validates:      true,
		RequiresConfig: true,
		Calls:          true,
		New:            newHandler,
	}
}

type plugin struct {
	client       *client
	defaultAllow bool
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	var c configuration
	var a *client
	err := admission.DecodeConfig(setup.Config, &c, func() field.ErrorList {
		errs := c.ImagePolicy.normalize()
		if len(errs) > 0 {
			return errs
		}
		var err error
		if a, err = newClient(&c.ImagePolicy, setup.Kubeconfig, setup.Metrics); err != nil {
			return field.ErrorList{field.Invalid(field.NewPath("imagePolicy", "kubeConfigFile"), c.ImagePolicy.KubeConfigFile, err.Error())}
		}
		return nil
	})
	if err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{client: a, defaultAllow: c.ImagePolicy.DefaultAllow}
	return admission.Handler{Validate: p.validate}, nil
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	question, err := questionOf(ctx, review)
	if err != nil {
		return admission.Errored(err)
	}
	status, err := p.client.ask(ctx, review.Namespace(), question)
	if errors.Is(err, codec.ErrNoMemory) {
		review.Object.Root().Refuse(codec.ErrNoMemory)
		return admission.Errored(err)
	}
	if err != nil {
		return p.failed(ctx, review, err)
	}
	for _, key := range slices.Sorted(maps.Keys(status.AuditAnnotations)) {
		_ = review.Response.Annotate(key, status.AuditAnnotations[key]) // an invalid key is ignored, as upstream
	}
	switch {
	case status.Allowed:
		return admission.Allowed()
	case status.Reason != "":
		err := fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason)
		return admission.Denied(admission.Forbidden(review, err))
	}
	return admission.Denied(admission.Forbidden(review, errRejected))
}

// failed returns the result if the backend did not answer. Upstream also sets an
// annotation of the pod, but on a copy that is not stored (k8s.io/apiserver
// pkg/registry/generic/registry/store.go).
func (p *plugin) failed(ctx context.Context, review *codec.Review, err error) admission.Result {
	if !p.defaultAllow {
		return admission.Denied(admission.Forbidden(review, err))
	}
	p.client.series.failedOpen.Inc()
	if err := review.Response.Annotate(failedOpen, "true"); err != nil {
		return admission.Errored(err)
	}
	if note := admission.NoteViolation(ctx); note != nil {
		note(admission.Violation{Plugin: name, Message: strings.Clone(err.Error()), Ignored: true})
	}
	return admission.Allowed()
}

// checkEach is the number of elements after which ctx and the memory are checked.
const checkEach = 1024

// questionOf returns the spec of the ImageReview as JSON, in its own memory: the images
// of the containers that the request creates or changes, and the pod's annotations for the
// backend.
func questionOf(ctx context.Context, review *codec.Review) ([]byte, error) {
	spec := review.Object.Get("spec")
	lists := []string{"containers", "initContainers"}
	if review.SubResource() == ephemeralContainers {
		lists = []string{"ephemeralContainers"}
	}
	q := question{text: []byte{'{'}}
	for _, list := range lists {
		for i, container := range spec.Get(list).Elements() {
			if i%checkEach == 0 && (ctx.Err() != nil || !review.Object.Fits(2*cap(q.text))) { // append may double it
				return nil, errors.Join(ctx.Err(), review.Err())
			}
			q.container(container.Get("image").String())
		}
	}
	q.end(`]`)
	for key, value := range review.Object.Get("metadata", "annotations").Members() {
		if strings.Contains(key, annotationPart) {
			if !review.Object.Fits(2 * (cap(q.text) + len(value.JSON()))) {
				return nil, review.Err()
			}
			q.annotation(key, value.String())
		}
	}
	q.end(`}`)
	if namespace := review.Namespace(); namespace != "" {
		q.text = append(q.text, `"namespace":`...)
		q.text = append(codec.AppendString(q.text, namespace), ',')
	}
	return append(bytes.TrimSuffix(q.text, []byte{','}), '}'), review.Err()
}

// A question builds the spec of an ImageReview.
type question struct {
	text  []byte
	begun bool // whether the current list or object has begun
}

func (q *question) begin(head string) {
	if !q.begun {
		q.text, q.begun = append(q.text, head...), true
	}
}

func (q *question) container(image string) {
	q.begin(`"containers":[`)
	if image == "" {
		q.text = append(q.text, `{},`...)
		return
	}
	q.text = append(q.text, `{"image":`...)
	q.text = append(codec.AppendString(q.text, image), `},`...)
}

func (q *question) annotation(key, value string) {
	q.begin(`"annotations":{`)
	q.text = append(codec.AppendString(q.text, key), ':')
	q.text = append(codec.AppendString(q.text, value), ',')
}

// end ends the current list or object, if it has begun.
func (q *question) end(tail string) {
	if q.begun {
		q.text[len(q.text)-1] = tail[0]
		q.text, q.begun = append(q.text, ','), false
	}
}
