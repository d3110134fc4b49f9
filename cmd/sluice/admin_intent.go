package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/sluice-xds/sluice/reconcile"
)

// intentLimit is the largest intent that is read, in bytes: one with a plan of some
// thousand groups.
const intentLimit = 1 << 20

// intents does what an operator asks for, in the name of the user at the other end
// of the socket.
func (a *admin) intents(w http.ResponseWriter, r *http.Request) {
	var in reconcile.Intent
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, intentLimit))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		answer(w, http.StatusBadRequest, adminError{`cannot read the intent: want {"verb": "pause", "group": "edge"}: ` + err.Error()})
		return
	}
	in.By = peerName(r.Context())
	out, err := a.loop.Do(r.Context(), in)
	var no *reconcile.IntentError
	var stale *reconcile.StaleError
	switch {
	case errors.As(err, &stale):
		answer(w, http.StatusPreconditionFailed, adminError{stale.Why})
	case errors.As(err, &no):
		answer(w, http.StatusConflict, adminError{no.Why})
	case err != nil:
		answer(w, http.StatusServiceUnavailable, adminError{err.Error()})
	default:
		answer(w, http.StatusOK, out)
	}
}
