package serviceaccount

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// isMirror reports whether the Pod is a mirror pod: a kubelet creates these to show the
// static pods that it runs.
func isMirror(review *codec.Review) bool {
	return review.Object.Get("metadata", "annotations", corev1.MirrorPodAnnotationKey).Exists()
}

// validateMirror denies mirror pods that refer to service accounts, secrets or tokens.
func validateMirror(review *codec.Review) admission.Result {
	if accountName(review) != "" {
		return denied(review, errors.New("a mirror pod may not reference service accounts"))
	}
	spec := review.Object.Get("spec")
	if podspec.NamesSecret(spec) {
		return denied(review, errors.New("a mirror pod may not reference secrets"))
	}
	for _, volume := range spec.Get("volumes").Elements() {
		for _, source := range volume.Get("projected", "sources").Elements() {
			if isObject(source.Get("serviceAccountToken")) {
				return denied(review, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return admission.Allowed()
}

func isObject(v codec.Value) bool { return v.Kind() == codec.KindObject }

// isLimited reports whether the account restricts its pods to the secrets that it lists.
func isLimited(account *corev1.ServiceAccount) bool {
	value, ok := account.Annotations[cluster.EnforceMountableSecretsAnnotation]
	if !ok {
		return false
	}
	limited, _ := strconv.ParseBool(value) // false if it is not a bool
	return limited
}

// limit denies a Pod that uses secrets that its account does not list.
func limit(review *codec.Review, account *corev1.ServiceAccount) admission.Result {
	if !isLimited(account) {
		return admission.Allowed()
	}
	if err := limitSecrets(review.Object.Get("spec"), account); err != nil {
		return denied(review, err)
	}
	return admission.Allowed()
}

// limitEphemeral is limit for ephemeral containers. In-tree, the denial is not a Forbidden
// error.
func limitEphemeral(review *codec.Review, account *corev1.ServiceAccount) admission.Result {
	if !isLimited(account) {
		return admission.Allowed()
	}
	if err := limitContainers(review.Object.Get("spec", "ephemeralContainers"), "ephemeral container", account); err != nil {
		return admission.Denied(err)
	}
	return admission.Allowed()
}

func limitSecrets(spec codec.Value, account *corev1.ServiceAccount) error {
	for _, volume := range spec.Get("volumes").Elements() {
		if source := volume.Get("secret"); isObject(source) && !allows(account, source.Get("secretName")) {
			return fmt.Errorf(`volume with secret.secretName="%s" is not allowed because service account %s does not `+
				`reference that secret`,
				source.Get("secretName").String(), account.Name)
		}
	}
	if err := limitContainers(spec.Get("initContainers"), "init container", account); err != nil {
		return err
	}
	if err := limitContainers(spec.Get("containers"), "container", account); err != nil {
		return err
	}
	for i, reference := range spec.Get("imagePullSecrets").Elements() {
		name := reference.Get("name").String()
		if !slices.Contains(account.ImagePullSecrets, corev1.LocalObjectReference{Name: name}) {
			return fmt.Errorf(`imagePullSecrets[%d].name="%s" is not allowed because service account %s does not reference `+
				`that imagePullSecret`,
				i, name, account.Name)
		}
	}
	return nil
}

// limitContainers checks the environment variables of containers.
func limitContainers(containers codec.Value, called string, account *corev1.ServiceAccount) error {
	for _, container := range containers.Elements() {
		refused := func(with string, secret codec.Value) error {
			return fmt.Errorf(`%s %s with %s referencing secret.secretName="%s" is not allowed because service account %s `+
				`does not reference that secret`,
				called, container.Get("name").String(), with, secret.String(), account.Name)
		}
		for _, env := range container.Get("env").Elements() {
			if from := env.Get("valueFrom", "secretKeyRef"); isObject(from) && !allows(account, from.Get("name")) {
				return refused("envVar "+env.Get("name").String(), from.Get("name"))
			}
		}
		for _, env := range container.Get("envFrom").Elements() {
			if from := env.Get("secretRef"); isObject(from) && !allows(account, from.Get("name")) {
				return refused("envFrom", from.Get("name"))
			}
		}
	}
	return nil
}

func allows(account *corev1.ServiceAccount, secret codec.Value) bool {
	return slices.ContainsFunc(account.Secrets, func(allowed corev1.ObjectReference) bool { return secret.String() == allowed.Name })
}
