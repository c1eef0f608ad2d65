// Command kubewebhook uses github.com/slok/kubewebhook as its users do: a webhook for Pods, behind
// net/http.
package main

import (
	"context"
	"encoding/json"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwhhttp "github.com/slok/kubewebhook/v2/pkg/http"
	"github.com/slok/kubewebhook/v2/pkg/model"
	"github.com/slok/kubewebhook/v2/pkg/webhook"
	"github.com/slok/kubewebhook/v2/pkg/webhook/mutating"
	"github.com/slok/kubewebhook/v2/pkg/webhook/validating"

	"github.com/fastadmit/fastadmit/bench/compare/serving"
	"github.com/fastadmit/fastadmit/bench/compare/typed"
)

func main() {
	o := serving.Flags()
	hook, err := newWebhook(o.Scenario)
	if err != nil {
		log.Fatal(err)
	}
	handler, err := kwhhttp.HandlerFor(kwhhttp.HandlerConfig{Webhook: hook})
	if err != nil {
		log.Fatal(err)
	}
	o.HTTP(handler)
}

func newWebhook(scenario string) (webhook.Webhook, error) {
	if scenario == "validate" {
		return validating.NewWebhook(validating.WebhookConfig{
			ID: scenario, Obj: new(corev1.Pod), Validator: validating.ValidatorFunc(validate),
		})
	}
	mutators, err := typed.Mutators(scenario)
	if err != nil {
		return nil, err
	}
	mutate := func(_ context.Context, review *model.AdmissionReview, object metav1.Object) (*mutating.MutatorResult, error) {
		var old *corev1.Pod
		if review.Operation == model.OperationUpdate { // kubewebhook decodes only the new object
			old = new(corev1.Pod)
			if err := json.Unmarshal(review.OldObjectRaw, old); err != nil {
				return nil, err
			}
		}
		for _, mutate := range mutators {
			if err := mutate(object.(*corev1.Pod), old); err != nil {
				return nil, err
			}
		}
		return &mutating.MutatorResult{}, nil
	}
	return mutating.NewWebhook(mutating.WebhookConfig{ID: scenario, Obj: new(corev1.Pod), Mutator: mutating.MutatorFunc(mutate)})
}

func validate(_ context.Context, _ *model.AdmissionReview, object metav1.Object) (*validating.ValidatorResult, error) {
	if err := typed.ValidatePrivileged(object.(*corev1.Pod)); err != nil {
		return &validating.ValidatorResult{Message: err.Error()}, nil
	}
	return &validating.ValidatorResult{Valid: true}, nil
}
