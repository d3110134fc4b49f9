package main

import (
	"net/http"
	"time"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/reconcile"
)

// loadsFor is how old a load report may be to count.
const loadsFor = time.Minute

// loadsDocument is the answer to GET /v1/loads.
type loadsDocument struct {
	FormatVersion string            `json:"format_version"`
	Clusters      []ads.ClusterLoad `json:"clusters"`
}

func (a *admin) loads(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, loadsDocument{reconcile.StatusFormat, a.loop.Server().View().Requests(time.Now().Add(-loadsFor))})
}
