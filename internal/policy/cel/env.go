// Package cel compiles and evaluates the CEL expressions of admission policies. The
// environment, the cost limits and the error messages are those of kube-apiserver
// (k8s.io/apiserver pkg/cel/environment and pkg/admission/plugin/cel). The
// expressions read the JSON text of a review; only the fields that they use are parsed.
//
// cel-go's interpreter can evaluate all expressions. Most also have a closure, which is faster
// (package closure). Both call some functions in bounded time and memory (package calls). The
// values from the review are in package view.
//
// The CEL environment takes some milliseconds and megabytes to create. It is created
// when the first expression is compiled.
package cel

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/fastadmit/fastadmit/admission"
)

// Declarations are the variables that an expression can use in addition to those of all
// expressions.
type Declarations struct {
	Params     bool // params
	Authorizer bool // authorizer
	// PatchTypes declares the types Object and JSONPatch, and jsonpatch.escapeKey.
	PatchTypes bool
	// Kyverno declares functions of Kyverno. Only policies that are translated from Kyverno's have them. Those of the
	// variable resource read other objects of the cluster, if Cluster.Resources lets the policy.
	Kyverno bool
}

const variablesTypeName = "kubernetes.variables"

var always = version.MajorMinor(1, 0) // as in kube-apiserver, for options that every release has

// environments are shared by all policies without variables.
var environments struct {
	sync.Mutex
	made map[environmentKey]*cel.Env
}

type environmentKey struct {
	Declarations
	admission.Version
}

// baseOf returns the libraries that a kube-apiserver of this release offers to the expressions of stored
// policies: those of its release and earlier ones (k8s.io/apiserver pkg/cel/environment/base.go). The stored
// expressions of package environment may use all libraries in its code, also newer ones. baseOf therefore
// uses its environment for new expressions, with this release as the compatibility version.
func baseOf(v admission.Version) *environment.EnvSet {
	return environment.MustBaseEnvSet(version.MajorMinor(1, uint(v.Minor())))
}

// sharedEnv returns the environment of policies without variables.
func sharedEnv(d Declarations, v admission.Version) (*cel.Env, error) {
	environments.Lock()
	defer environments.Unlock()
	key := environmentKey{d, v}
	if env := environments.made[key]; env != nil {
		return env, nil
	}
	env, err := newEnv(d, v, apiservercel.NewObjectType(variablesTypeName, map[string]*apiservercel.DeclField{}))
	if err != nil {
		return nil, err
	}
	if environments.made == nil {
		environments.made = make(map[environmentKey]*cel.Env)
	}
	environments.made[key] = env
	return env, nil
}

// newEnv returns an environment whose variable "variables" has the fields of a type, including
// fields that are added to the type later.
func newEnv(d Declarations, v admission.Version, variables *apiservercel.DeclType) (*cel.Env, error) {
	request, namespace := requestType(), namespaceType()
	options := []cel.EnvOption{
		cel.Variable("variables", variables.CelType()),
		cel.Variable("object", cel.DynType),
		cel.Variable("oldObject", cel.DynType),
		cel.Variable("namespaceObject", namespace.CelType()),
		cel.Variable("request", request.CelType()),
	}
	if d.Params {
		options = append(options, cel.Variable("params", cel.DynType))
	}
	if d.Authorizer {
		options = append(options,
			cel.Variable("authorizer", library.AuthorizerType),
			cel.Variable("authorizer.requestResource", library.ResourceCheckType))
	}
	if d.Kyverno {
		options = append(append(options, resourceOptions...), kyvernoOptions...)
	}
	set, err := baseOf(v).Extend(environment.VersionedOptions{
		IntroducedVersion: always,
		EnvOptions:        options,
		DeclTypes:         []*apiservercel.DeclType{variables, namespace, request},
	}, environment.StrictCostOpt)
	if err == nil && d.PatchTypes {
		set, err = set.Extend(environment.VersionedOptions{
			IntroducedVersion: always,
			EnvOptions:        []cel.EnvOption{withPatchTypes, environment.UnversionedLib(library.JSONPatch)},
		})
	}
	if err != nil {
		return nil, fmt.Errorf("environment misconfigured: %w", err)
	}
	return set.NewExpressionsEnv(), nil
}

// fields are the fields of a declared type.
type fields map[string]*apiservercel.DeclType

func objectType(name string, all fields, optional ...string) *apiservercel.DeclType {
	declared := make(map[string]*apiservercel.DeclField, len(all))
	for name, t := range all {
		required := true
		for _, o := range optional {
			required = required && o != name
		}
		declared[name] = apiservercel.NewDeclField(name, t, required, nil, nil)
	}
	return apiservercel.NewObjectType(name, declared)
}

// requestType is BuildRequestType upstream.
func requestType() *apiservercel.DeclType {
	text := apiservercel.StringType
	kind := objectType("kubernetes.GroupVersionKind", fields{"group": text, "version": text, "kind": text})
	resource := objectType("kubernetes.GroupVersionResource", fields{"group": text, "version": text, "resource": text})
	texts := apiservercel.NewListType(text, -1)
	user := objectType("kubernetes.UserInfo", fields{
		"username": text, "uid": text, "groups": texts, "extra": apiservercel.NewMapType(text, texts, -1),
	}, "username", "uid", "groups", "extra")
	return objectType("kubernetes.AdmissionRequest", fields{
		"kind": kind, "resource": resource, "subResource": text,
		"requestKind": kind, "requestResource": resource, "requestSubResource": text,
		"name": text, "namespace": text, "operation": text, "userInfo": user,
		"dryRun": apiservercel.BoolType, "options": apiservercel.DynType,
	}, "subResource", "requestSubResource", "namespace", "dryRun", "options")
}

// namespaceType is BuildNamespaceType upstream.
func namespaceType() *apiservercel.DeclType {
	text, when := apiservercel.StringType, apiservercel.TimestampType
	texts := apiservercel.NewListType(text, -1)
	condition := objectType("kubernetes.NamespaceCondition", fields{
		"status": text, "type": text, "lastTransitionTime": when, "message": text, "reason": text,
	})
	labels := apiservercel.NewMapType(text, text, -1)
	metadata := objectType("kubernetes.NamespaceMetadata", fields{
		"name": text, "generateName": text, "namespace": text, "labels": labels, "annotations": labels, "UID": text,
		"creationTimestamp": when, "deletionGracePeriodSeconds": apiservercel.IntType, "deletionTimestamp": when,
		"generation": apiservercel.IntType, "resourceVersion": text, "finalizers": texts,
	})
	return objectType("kubernetes.Namespace", fields{
		"metadata": metadata,
		"spec":     objectType("kubernetes.NamespaceSpec", fields{"finalizers": texts}),
		"status": objectType("kubernetes.NamespaceStatus", fields{
			"conditions": apiservercel.NewListType(condition, -1), "phase": text,
		}),
	})
}
