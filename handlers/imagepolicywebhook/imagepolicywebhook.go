// Package imagepolicywebhook is the admission plugin ImagePolicyWebhook.
//
// It asks a server of the operator's, the backend, whether the images of a pod may
// run: a scanner, or a registry's policy. Where such a server speaks
// imagepolicy.k8s.io/v1alpha1 ImageReview, one wants it on.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/imagepolicy v1.36.3.
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
	// annotationPart is in the key of each annotation of a pod that the backend is sent.
	annotationPart = ".image-policy.k8s.io/"

	// failedOpen is the audit annotation of a pod that is allowed because the backend
	// did not answer.
	failedOpen = "failed-open"

	ephemeralContainers = "ephemeralcontainers"
)

var errRejected = errors.New("one or more images rejected by webhook backend")

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	rule := admission.CreateUpdate("pods")
	rule.Resources = append(rule.Resources, "pods/"+ephemeralContainers)
	return admission.Plugin{
		Name:           "ImagePolicyWebhook",
		Summary:        "asks a server of yours whether the images of a pod may run",
		Rules:          []admission.Rule{rule},
		Validates:      true,
		RequiresConfig: true,
		New:            newHandler,
	}
}

type plugin struct {
	asker        *asker
	defaultAllow bool
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	var c configuration
	var a *asker
	err := admission.DecodeConfig(setup.Config, &c, func() field.ErrorList {
		errs := c.ImagePolicy.normalize()
		if len(errs) > 0 {
			return errs
		}
		var err error
		if a, err = newAsker(&c.ImagePolicy, setup.Kubeconfig, setup.Metrics); err != nil {
			return field.ErrorList{field.Invalid(field.NewPath("imagePolicy", "kubeConfigFile"), c.ImagePolicy.KubeConfigFile, err.Error())}
		}
		return nil
	})
	if err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{asker: a, defaultAllow: c.ImagePolicy.DefaultAllow}
	return admission.Handler{Validate: p.validate}, nil
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	question, err := questionOf(ctx, review)
	if err != nil {
		return admission.Errored(err)
	}
	status, err := p.asker.ask(ctx, question)
	if err != nil {
		return p.failed(review, err)
	}
	for _, key := range slices.Sorted(maps.Keys(status.AuditAnnotations)) {
		_ = review.Response.Annotate(key, status.AuditAnnotations[key]) // a key that is none is left out, as upstream
	}
	switch {
	case status.Allowed:
		return admission.Allowed()
	case status.Reason != "":
		return admission.Denied(admission.Forbidden(review, fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason)))
	}
	return admission.Denied(admission.Forbidden(review, errRejected))
}

// failed says what becomes of a pod when the backend did not answer. Upstream also
// sets an annotation of the pod, on a copy that nobody sees (k8s.io/apiserver
// pkg/registry/generic/registry/store.go).
func (p *plugin) failed(review *codec.Review, err error) admission.Result {
	if !p.defaultAllow {
		return admission.Denied(admission.Forbidden(review, err))
	}
	p.asker.series.failedOpen.Inc()
	if err := review.Response.Annotate(failedOpen, "true"); err != nil {
		return admission.Errored(err)
	}
	return admission.Allowed()
}

// elementsMax is after how many elements ctx is looked at.
const elementsMax = 1024

// questionOf returns the spec of the ImageReview as JSON, in memory of its own: the
// images of the containers that the request is about, and the pod's annotations that
// are meant for the backend.
func questionOf(ctx context.Context, review *codec.Review) ([]byte, error) {
	spec := review.Object.Get("spec")
	lists := []string{"containers", "initContainers"}
	if review.SubResource() == ephemeralContainers {
		lists = []string{"ephemeralContainers"}
	}
	q := question{text: []byte{'{'}}
	for _, list := range lists {
		for i, container := range spec.Get(list).Elements() {
			if i%elementsMax == 0 && (ctx.Err() != nil || !review.Object.Fits(2*cap(q.text))) { // which grows by as much
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

// A question is the spec of an ImageReview that is being written.
type question struct {
	text  []byte
	begun bool // a list or object
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

// end ends what was begun.
func (q *question) end(tail string) {
	if q.begun {
		q.text[len(q.text)-1] = tail[0]
		q.text, q.begun = append(q.text, ','), false
	}
}
