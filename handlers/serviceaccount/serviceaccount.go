// Package serviceaccount is the admission plugin ServiceAccount.
//
// It gives every new Pod a service account, and mounts the token and the certificates with
// which its containers authenticate to the API server. Without it, pods have no identity
// there, and may name accounts that do not exist. kube-apiserver enables it by default.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/serviceaccount.
package serviceaccount

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	defaultName = "default"

	// How often the plugin asks the API server for an account, and the pause before the next
	// attempt. A controller creates the default account shortly after the namespace.
	attempts           = 1
	attemptsForDefault = 10
	intervalMin        = 100 * time.Millisecond
	intervalMax        = 200 * time.Millisecond
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "ServiceAccount",
		Summary: "gives pods a service account, its token and its imagePullSecrets",
		Rules: []admission.Rule{
			admission.NewRule("", "v1", "pods", codec.Create),
			admission.NewRule("", "v1", "pods/ephemeralcontainers", codec.Update),
		},
		Mutates:     true,
		Validates:   true,
		Needs:       []cluster.Need{cluster.ServiceAccounts.Watched()},
		OnByDefault: true,
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{accounts: cluster.ServiceAccounts.In(setup.Cluster)}
			return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	accounts *cluster.Objects[*corev1.ServiceAccount]
}

// admit changes pods that are created. It then runs the checks of validate, so that users
// get a denial before other plugins run.
func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	if review.Operation() != codec.Create {
		return admission.Allowed()
	}
	// The kubelet deletes a mirror pod that differs from the one it created.
	if isMirror(review) {
		return validateMirror(review)
	}
	name := accountName(review)
	if name == "" {
		name = defaultName
	}
	account, failed := p.find(ctx, review, name)
	if account == nil {
		return failed
	}
	pod := &review.Object
	if accountName(review) == "" {
		pod.SetString(name, "spec", "serviceAccountName")
		pod.SetString(name, "spec", "serviceAccount") // the deprecated field, which conversion sets to the same value
	}
	if mounts(account, pod.Get("spec")) {
		mountToken(pod)
	}
	if pod.Get("spec", "imagePullSecrets").Len() == 0 && len(account.ImagePullSecrets) > 0 {
		pod.Set(references(pod, account.ImagePullSecrets), "spec", "imagePullSecrets")
	}
	return limit(review, account)
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if review.Operation() == codec.Create && isMirror(review) {
		return validateMirror(review)
	}
	name := accountName(review)
	if name == "" {
		return denied(review, fmt.Errorf("no service account specified for pod %s/%s",
			review.Namespace(), review.Object.Get("metadata", "name").String()))
	}
	account, failed := p.find(ctx, review, name)
	if account == nil {
		return failed
	}
	if review.Operation() == codec.Update {
		return limitEphemeral(review, account)
	}
	return limit(review, account)
}

func denied(review *codec.Review, err error) admission.Result {
	return admission.Denied(admission.Forbidden(review, err))
}

// accountName reads the name as the conversion of a Pod to the internal type does
// (k8s.io/kubernetes pkg/apis/core/v1 Convert_v1_PodSpec_To_core_PodSpec).
func accountName(review *codec.Review) string {
	if name := review.Object.Get("spec", "serviceAccountName").String(); name != "" {
		return name
	}
	return review.Object.Get("spec", "serviceAccount").String()
}

// mounts reports whether containers get the token. The setting of the Pod takes precedence
// over that of its account.
func mounts(account *corev1.ServiceAccount, spec codec.Value) bool {
	if own := spec.Get("automountServiceAccountToken"); own.Kind() == codec.KindBool {
		return own.Bool()
	}
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken
}

// references returns references to objects in the pod's namespace, as JSON.
func references(pod *codec.Object, to []corev1.LocalObjectReference) string {
	return pod.Compose(func(dst []byte) []byte {
		for i, reference := range to {
			separator := byte(',')
			if i == 0 {
				separator = '['
			}
			if dst = append(dst, separator, '{'); reference.Name != "" {
				dst = codec.AppendString(append(dst, `"name":`...), reference.Name)
			}
			dst = append(dst, '}')
		}
		return append(dst, ']')
	})
}

// find returns the account, or the result of the request if there is none.
func (p *plugin) find(ctx context.Context, review *codec.Review, name string) (*corev1.ServiceAccount, admission.Result) {
	namespace := review.Namespace()
	if account, ok := p.accounts.Cached(namespace, name); ok {
		return account, admission.Result{}
	}
	account, err := p.ask(ctx, namespace, name)
	if err == nil {
		return account, admission.Result{}
	}
	err = fmt.Errorf("error looking up service account %s/%s: %w", namespace, name, err)
	if !apierrors.IsNotFound(err) && !cluster.IsInvalidName(err) {
		return nil, admission.Errored(err)
	}
	return nil, denied(review, err)
}

// ask asks the API server for an account that is not in the cache.
func (p *plugin) ask(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	left := attempts
	if name == defaultName {
		left = attemptsForDefault
	}
	interval := intervalMin + rand.N(intervalMax-intervalMin)
	for {
		account, err := p.accounts.GetLive(ctx, namespace, name)
		if !apierrors.IsNotFound(err) {
			return account, err
		}
		if left--; left == 0 {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil, fmt.Errorf("not there yet: %w", ctx.Err())
		}
	}
}
