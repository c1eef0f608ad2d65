package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	e2e "github.com/fastadmit/fastadmit/e2e/cluster"
)

// webhook is fastadmit's name in the webhook configuration.
const webhook = "fastadmit.example.com"

// ours is a plugin of fastadmit in a chain of its own. It processes the answers as an API server does.
type ours struct {
	chain *admission.Chain
	known *cluster.Objects[*corev1.Namespace]
}

// NewOurs prepares the plugin. Config is its configuration file, empty for none.
func NewOurs(plugin admission.Plugin, config string, world World) (Implementation, error) {
	objects, err := asCustomResources(world.Objects)
	if err != nil {
		return nil, err
	}
	known := cluster.Options{Objects: append([]runtime.Object{}, objects...)}
	watches := slices.ContainsFunc(plugin.Needs, func(n cluster.Need) bool { return slices.Contains(n.Verbs, "watch") })
	switch {
	case watches: // the stand-in serves no objects to watch
		known.Authorize = world.authorize
	case world.Authorizer != nil:
		file, err := theStandIn().kubeconfig(world.Authorizer)
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(filepath.Dir(file))
		known = cluster.Options{Kubeconfig: file}
	}
	known.Kinds = cluster.KindsOf(plugin.Needs...)
	state, err := cluster.New(known)
	if err != nil {
		return nil, err
	}
	if err := state.Follow(context.Background(), plugin.AllNeeds([]byte(config))...); err != nil {
		return nil, err
	}
	enabled := admission.Enabled{Version: world.Version}
	if config != "" {
		enabled.Config = []byte(config)
	}
	if enabled.Kubeconfig, err = kubeconfigOf(config); err != nil {
		return nil, err
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
	if err != nil {
		return nil, err
	}
	var namespaces *cluster.Objects[*corev1.Namespace] // from files; the stand-in has none
	if known.Kubeconfig == "" {
		namespaces = cluster.Namespaces.In(state.View(cluster.Namespaces.Called("list")))
	}
	if world.hasQuotas() {
		return &quotaOurs{&ours{chain, namespaces}, cluster.ResourceQuotas.In(state.View(cluster.ResourceQuotas.Watched()))}, nil
	}
	return &ours{chain, namespaces}, nil
}

func (o *ours) namespaces() ([]string, error) {
	if o.known == nil {
		return nil, nil
	}
	list, err := o.known.ListLive(context.Background(), "")
	names := make([]string, len(list))
	for i, n := range list {
		names[i] = n.Name
	}
	slices.Sort(names)
	return names, err
}

func (o *ours) answer(r *request, phase admission.Phase) (Answer, error) {
	response, err := o.respond(r.body, phase)
	if err != nil {
		return Answer{}, err
	}
	decoded := new(admissionv1.AdmissionReview)
	if err := runtime.DecodeInto(reviewCodec(), response, decoded); err != nil {
		return Answer{}, fmt.Errorf("%w in %s", err, response)
	}
	result, err := webhookrequest.VerifyAdmissionResponse(uid, phase == admission.Mutate, decoded)
	if err != nil {
		return Answer{}, fmt.Errorf("%w in %s", err, response)
	}
	answer := Answer{Warnings: result.Warnings}
	for key, value := range result.AuditAnnotations {
		// The chain adds annotations about the decision of the plugin and about the review.
		if key != o.chain.Plugins()[0].Name && key != admission.CauseAdmissionReview {
			answer.annotate(key, value)
		}
	}
	if !result.Allowed {
		status := webhookerrors.ToStatusErr(webhook, result.Result).ErrStatus
		e2e.Unattributed(&status)
		answer.Status = &status
		return answer, nil
	}
	if phase == admission.Validate {
		return answer, nil
	}
	answer.Object, err = apply(result.Patch, r.object)
	return answer, err
}

func (o *ours) respond(body []byte, phase admission.Phase) ([]byte, error) {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(bytes.Clone(body)); err != nil {
		return nil, err
	}
	if _, err := o.chain.Review(context.Background(), review, phase); err != nil {
		return nil, err
	}
	return review.AppendResponse(nil), nil
}

// apply applies a patch with the library of API servers. A patch that changes nothing is an error:
// fastadmit must not send one.
func apply(patch, object []byte) ([]byte, error) {
	if len(patch) == 0 {
		return object, nil
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, patch)
	}
	if object == nil {
		return nil, errors.New("got a patch for a request without an object")
	}
	patched, err := operations.Apply(object)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, patch)
	}
	if equalJSON(patched, object) {
		return nil, fmt.Errorf("got a patch that changes nothing: %s", patch)
	}
	return patched, nil
}
