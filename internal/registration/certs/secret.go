package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// attemptsMax is how often a pass reads and changes the Secret. Changing everything takes three
// attempts. Each replica that is faster costs one more.
const attemptsMax = 20

// certManager is the annotation of Secrets that cert-manager writes. They have no CA key, and
// cert-manager would undo changes.
const certManager = "cert-manager.io/certificate-name"

// reconcileSecret reads the Secret into m.known, and changes the Secret until it is correct.
func (m *Manager) reconcileSecret(ctx context.Context) error {
	for range attemptsMax {
		secret, err := m.readSecret(ctx)
		if err != nil {
			return err
		}
		if name, theirs := secret.Annotations[certManager]; theirs {
			return fmt.Errorf("cannot manage Secret %s: it belongs to cert-manager's Certificate %q; serve the certificate from files, or name another Secret", m.o.SecretName, name)
		}
		now := m.clock.now()
		s, wrong := parseState(secret.Data, m.o.Hosts, now)
		if m.known == nil && len(secret.Data) == 0 {
			wrong = nil // the Secret is empty at first
		}
		have, wrongTokens := parseTokens(secret.Data[pathTokensKey])
		if m.o.PathTokens != nil && wrongTokens != nil {
			wrong = errors.Join(wrong, wrongTokens)
		}
		if s != nil {
			m.known = s
			m.observe(time.Now())
		}
		c, err := m.next(s, now)
		if err != nil {
			return fmt.Errorf("cannot make a certificate: %w", err)
		}
		tokens, why := m.nextTokens(have, now)
		switch {
		case c == nil && why == "":
			m.tokens.all = tokens
			return nil
		case c == nil:
			c = &change{state: s, why: why}
		}
		c.tokens, c.token = tokens, why != ""
		err = m.writeSecret(ctx, secret, c)
		deleted := apierrors.IsNotFound(err) && secret.ResourceVersion != ""
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || deleted {
			continue // another writer was faster
		}
		if err != nil {
			return errors.Join(err, wrong)
		}
		m.wrote(c, wrong)
		m.known, m.tokens.all = c.state, tokens
	}
	return fmt.Errorf("cannot write Secret %s: another writer changed it during each of %d attempts", m.o.SecretName, attemptsMax)
}

// wrote logs and counts a change. It is a repair if wrong is not nil.
func (m *Manager) wrote(c *change, wrong error) {
	if c.ca {
		m.metrics.renewals[caResource].Inc()
	}
	if c.token {
		m.metrics.renewals[tokenResource].Inc()
	}
	if c.leaf {
		m.metrics.renewals[leafResource].Inc()
	}
	attributes := []any{"why", c.why, "newCA", c.ca, "newLeaf", c.leaf, "pathTokens", len(c.tokens), "caExpires", c.cas[0].NotAfter, "leafExpires", c.state.leaf.Leaf.NotAfter}
	if wrong != nil {
		m.metrics.repairs.Inc()
		m.o.Log.Warn("repaired the Secret of the certificates", append(attributes, "wrong", wrong.Error())...)
		return
	}
	m.o.Log.Info("wrote the Secret of the certificates", attributes...)
}

// readSecret returns the Secret. If it does not exist, the result has no resource version.
func (m *Manager) readSecret(ctx context.Context) (*corev1.Secret, error) {
	text, err := m.client.get(ctx, secretsPath(m.o.SecretNamespace), m.o.SecretName)
	secret := new(corev1.Secret)
	if err == nil && text != nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read Secret %s: %w", m.o.SecretName, err)
	}
	return secret, nil
}

// writeSecret creates the Secret or replaces that version of it.
func (m *Manager) writeSecret(ctx context.Context, secret *corev1.Secret, c *change) error {
	request := m.client.rest.Put().AbsPath(secretsPath(m.o.SecretNamespace), m.o.SecretName)
	if secret.ResourceVersion == "" {
		owners, err := m.owners(ctx)
		if err != nil {
			return err
		}
		request = m.client.rest.Post().AbsPath(secretsPath(m.o.SecretNamespace))
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: m.o.SecretNamespace, Name: m.o.SecretName, OwnerReferences: owners}
		secret.Type = corev1.SecretTypeTLS
	}
	secret.APIVersion, secret.Kind = "v1", "Secret"
	if secret.Data == nil {
		secret.Data = make(map[string][]byte)
	}
	if err := c.put(secret.Data); err != nil {
		return fmt.Errorf("cannot encode a certificate: %w", err)
	}
	if len(c.tokens) > 0 {
		secret.Data[pathTokensKey] = encodeTokens(c.tokens)
	}
	text, err := json.Marshal(secret)
	if err == nil {
		_, err = m.client.write(ctx, request, text)
	}
	if apierrors.IsForbidden(err) && secret.ResourceVersion == "" {
		return fmt.Errorf("there is no Secret %s, and fastadmit may not create one: create it without data, as the chart does, and fastadmit fills it: %w", m.o.SecretName, err)
	}
	if err != nil {
		return fmt.Errorf("cannot write Secret %s: %w", m.o.SecretName, err)
	}
	return nil
}

// owners returns the owner reference to Options.Owner, so that objects are deleted with it.
func (m *Manager) owners(ctx context.Context) ([]metav1.OwnerReference, error) {
	if m.o.Owner == "" {
		return nil, nil
	}
	var owner rbacv1.ClusterRole
	text, err := m.client.get(ctx, clusterRolesPath, m.o.Owner)
	if err == nil && text == nil {
		err = errors.New("there is none")
	}
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &owner)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read ClusterRole %s, the owner of the certificates and webhook configurations: %w", m.o.Owner, err)
	}
	return []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: owner.Name, UID: owner.UID}}, nil
}
